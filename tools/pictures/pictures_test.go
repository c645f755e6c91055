package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

func TestEveryPictureIsDrawnFromTheTextThatIsInTheRepository(t *testing.T) {
	all, err := pictures(root)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), 4, "pictures")
	for name, want := range all {
		got, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		if string(got) != want {
			t.Errorf("%s is out of date: run `make pictures`", name)
		}
	}
	names, err := filepath.Glob(filepath.Join(root, "docs/pictures/*.svg"))
	require.NoError(t, err)
	for _, name := range names {
		svg, err := os.ReadFile(name)
		require.NoError(t, err)
		_, drawn := all["docs/pictures/"+filepath.Base(name)]
		assert.NotEqual(t, drawn, strings.Contains(string(svg), "drawn by hand"), "%s: a picture that no text draws", name)
	}
}

func TestEveryPictureIsReadableInLightAndDarkAndWithoutSight(t *testing.T) {
	all, err := pictures(root)
	require.NoError(t, err)
	for _, byHand := range []string{"lease.svg", "trust.svg"} {
		svg, err := os.ReadFile(filepath.Join(root, "docs/pictures", byHand))
		require.NoError(t, err)
		all[byHand] = string(svg)
	}
	for name, svg := range all {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		assert.Contains(t, svg, "prefers-color-scheme:dark", name)
		assert.NotContains(t, svg, "<title id=\"title\"></title>", "%s has a title", name)
		assert.NotContains(t, svg, "<desc id=\"desc\"></desc>", "%s has a text", name)
	}
}

func TestTheMovingPictureShowsTheKillAndTheTakeover(t *testing.T) {
	cast, err := os.ReadFile(filepath.Join(root, "docs/pictures/demo.cast"))
	require.NoError(t, err)
	svg, err := film(string(cast))
	require.NoError(t, err)
	for _, want := range []string{"is killed with -9", "lease has run out", "dead: its lease runs out", ": correct"} {
		assert.Contains(t, svg, want)
	}
	assert.Contains(t, svg, "prefers-reduced-motion", "it stands still for people who want that")
}

func TestControlARecordingThatEndedBadlyIsNotDrawn(t *testing.T) {
	cast, err := os.ReadFile(filepath.Join(root, "docs/pictures/demo.cast"))
	require.NoError(t, err)
	_, err = film(strings.ReplaceAll(string(cast), ": correct", ": wrong"))
	require.ErrorContains(t, err, "did not end well")
}

func TestAChartHasTheFiguresOfTheTables(t *testing.T) {
	const path = "docs/pictures/comparison.svg"
	const page = `<!-- waiters: begin -->
| lock | server | 1 waiter: median · 95 · 99 % | 8 waiters |
|---|---|---:|---:|
| **mongolock** | secantus, journal | 6.68 · 24.0 · 31.1 ms | 7.00 · 25.0 · 32.1 ms |
| another, retried | Redis as installed: none | 47.8 · 94.3 · 30042 ms | 8.00 · 9.0 · 9.1 ms |

60 hand-overs each.
<!-- waiters: end -->
<!-- idle: begin -->
| lock | server | requests a second |
|---|---|---:|
| **mongolock** | secantus, journal | 0.25 |
| another, retried | Redis as installed: none | 612 |
<!-- idle: end -->`
	svg, err := chart(page, path)
	require.NoError(t, err)
	for _, want := range []string{">6.68<", ">24.0<", ">47.8<", ">94.3<", ">0.25<", ">612<", ">another<", ">SecantusDB<", ">Redis as installed<"} {
		assert.Contains(t, svg, want)
	}
	_, err = chart("<!-- waiters: begin -->\n| lock | server | c |\n<!-- waiters: end -->", path)
	require.ErrorContains(t, err, "the table waiters has no figures")
	_, err = chart(strings.Replace(page, "| another, retried | Redis as installed: none | 612 |\n", "", 1), path)
	require.ErrorContains(t, err, "the table idle does not have another, retried on Redis as installed: none")
	_, err = chart(strings.Replace(page, "| 612 |", "| not taken |", 1), path)
	require.ErrorContains(t, err, `the table idle has no figure in "not taken"`)
	_, err = chart(strings.NewReplacer("0.25", "0", "612", "0").Replace(page), path)
	require.ErrorContains(t, err, "all figures are 0")
}

func TestAnUnknownStatementIsAnErrorWithItsLine(t *testing.T) {
	_, err := sequence("sequence\nactor A: a\nA flies: away")
	require.ErrorContains(t, err, "line 3")
	_, err = sequence("painting\n")
	require.ErrorContains(t, err, "painting")
}

func TestARecordingHasTheLinesAndTheirTimes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cast")
	from, to := io.Pipe()
	go func() {
		fmt.Fprintln(to, "at once …")
		<-time.After(200 * time.Millisecond)
		fmt.Fprintln(to, "later")
		to.Close()
	}()
	require.NoError(t, record(file, from))
	cast, err := os.ReadFile(file)
	require.NoError(t, err)
	all, err := readCast(string(cast))
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, "at once …", all[0].text)
	assert.Equal(t, "later", all[1].text)
	assert.GreaterOrEqual(t, all[1].at-all[0].at, 0.15, "when the second came")
}

func TestALineThatComesInTwoPiecesIsReadAsOne(t *testing.T) {
	all, err := readCast("{\"version\":2}\n[0.1,\"o\",\"a … b\\r\\nc\"]\n[0.5,\"o\",\"d\\n\"]\n")
	require.NoError(t, err)
	assert.Equal(t, []printed{{0.1, "a … b"}, {0.5, "cd"}}, all)
}
