package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

func TestEveryPictureIsDrawnFromTheTextThatIsInTheRepository(t *testing.T) {
	all, err := pictures(root)
	require.NoError(t, err)
	require.Greater(t, len(all), 6, "pictures")
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
		assert.Contains(t, all, "docs/pictures/"+filepath.Base(name), "a picture that no text draws")
	}
}

func TestEveryPictureIsReadableInLightAndDarkAndWithoutSight(t *testing.T) {
	all, err := pictures(root)
	require.NoError(t, err)
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

func TestTheChartHasTheFiguresOfTheTable(t *testing.T) {
	const page = `<!-- measured: begin -->
| lock | server | pair | handed | late |
|---|---|---|---|---|
| **mongolock** | secantus, journal | 2.27 ms | 6.68 ms | 24.01 ms |
| another, retried | Redis as installed: none | 0.07 ms | 47.82 ms | 94.30 ms |
<!-- measured: end -->
<!-- idle: begin -->
| lock | server | asked |
|---|---|---|
| **mongolock** | secantus, journal | 0.25 |
| another, retried | Redis as installed: none | 9.87 |
<!-- idle: end -->`
	svg, err := chart(page)
	require.NoError(t, err)
	for _, want := range []string{">6.7<", ">24.0<", ">47.8<", ">94.3<", ">0.25<", ">9.87<", ">another<", ">SecantusDB<", ">Redis as installed<"} {
		assert.Contains(t, svg, want)
	}
	_, err = chart("<!-- measured: begin -->\n| a | b | c | d | e |\n<!-- measured: end --><!-- idle: begin --><!-- idle: end -->")
	require.Error(t, err, "a table without figures")
	_, err = chart(strings.Replace(page, "| another, retried | Redis as installed: none | 9.87 |\n", "", 1))
	require.ErrorContains(t, err, "nothing says what another on Redis as installed asks")
}

func TestAStatementThatNobodyKnowsIsAnErrorWithItsLine(t *testing.T) {
	for _, text := range []string{"sequence\nactor A: a\nA flies: away", "timeline\naxis 0 1 1 s\nA flies: away", "states\n\nA flies: away"} {
		_, err := diagram(text)
		require.ErrorContains(t, err, "line 3", text)
	}
	_, err := diagram("painting\n")
	require.ErrorContains(t, err, "painting")
}

func TestALineThatComesInTwoPiecesIsReadAsOne(t *testing.T) {
	all, err := readCast("{\"version\":2}\n[0.1,\"o\",\"a … b\\r\\nc\"]\n[0.5,\"o\",\"d\\n\"]\n")
	require.NoError(t, err)
	assert.Equal(t, []printed{{0.1, "a … b"}, {0.5, "cd"}}, all)
}
