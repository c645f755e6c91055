package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAQuantileIsOneOfTheValues(t *testing.T) {
	var d durations
	for i := range 100 {
		d = append(d, time.Duration(100-i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.95: 95, 0.99: 99, 1: 100} {
		assert.Equal(t, want, d.quantile(q), "%v", q)
	}
	assert.Equal(t, time.Duration(7), durations{7}.quantile(0.99))
	assert.Zero(t, durations{}.quantile(0.5))
}

func TestFairnessIsOneIfAllHaveTheSameAndAnEighthIfOneOfEightHasAll(t *testing.T) {
	assert.InDelta(t, 1, jain([]float64{3, 3, 3}), 1e-9)
	assert.InDelta(t, 1.0/8, jain([]float64{9, 0, 0, 0, 0, 0, 0, 0}), 1e-9)
	assert.Zero(t, jain([]float64{0, 0}), "nobody had it")
}

func TestOnlyTheClearlyQuickerAreAhead(t *testing.T) {
	of := func(name string, pair time.Duration) *rival {
		r := &rival{contender: contender{name: name, server: "s: more"}}
		r.pair[0] = durations{pair}
		return r
	}
	all := []*rival{of("ours", 100*time.Millisecond), of("as quick, nearly", 97*time.Millisecond), of("quicker, by far", 50*time.Millisecond), of("slower", time.Second)}
	said := pairTable.draw(all)
	assert.Contains(t, said, "**Ahead of mongolock's 100 ms for a free pair by more than 5 %:** quicker on s (50.0).")
	assert.Contains(t, pairTable.draw(all[:2]), "Nobody is ahead of mongolock's 100 ms")
}

// Both pages show one run.
func TestTheSummaryOfTheUsersPageIsTakenFromTheTables(t *testing.T) {
	rows := func(file, mark string) (rows [][]string) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(text), "<!-- "+mark+": begin -->")
		table, _, found := strings.Cut(rest, "<!-- "+mark+": end -->")
		require.True(t, found, "%s: %s", file, mark)
		for line := range strings.Lines(table) {
			if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) > 2 && cells[0] != "lock" {
				rows = append(rows, cells)
			}
		}
		return rows
	}
	const users, every = "../../docs/comparison.md", "../../docs/" + everyPage
	shown := rows(users, "summary")
	require.NotEmpty(t, shown)
	require.Len(t, shown, len(rows(every, "pair")))
	for mark, column := range map[string]int{"pair": 2, "waiters": 3, "idle": 5} {
		for i, row := range rows(every, mark) {
			assert.Equal(t, shortened(row[0]), shown[i][0])
			assert.Equal(t, shown[i][column], strings.Fields(row[2])[0], "%s of %s", mark, row[0])
		}
	}
}

func TestTheSummaryHasOneNumberOfEachKind(t *testing.T) {
	r := &rival{contender: contender{name: "a lock, asked", server: "Redis, `appendfsync always`"}, idle: 640}
	r.pair[0], r.handOver[0], r.handOver[2] = durations{time.Millisecond}, durations{2 * time.Millisecond}, durations{3 * time.Millisecond}
	r.contended[1] = contention{rates: []float64{411}, fairness: []float64{0.93}}
	assert.Contains(t, summary([]*rival{r}), "\n| a lock | Redis, durable | 1.00 | 2.00 | 3.00 | 640 | 411 | 0.93 |\n")
}

func TestALinkDelaysEachWayAndLosesNothing(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	go func() {
		conn, err := server.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	const roundTrip = 60 * time.Millisecond
	conn, err := newLink(roundTrip).DialContext(context.Background(), "tcp", server.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	sent := make([]byte, 200_000)
	for i := range sent {
		sent[i] = byte(i * 7)
	}
	began := time.Now()
	go func() { _, _ = conn.Write(sent) }()
	got := make([]byte, len(sent))
	_, err = io.ReadFull(conn, got[:1])
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(began), roundTrip)
	_, err = io.ReadFull(conn, got[1:])
	require.NoError(t, err)
	assert.Equal(t, sent, got)
	assert.Nil(t, newLink(0), "nothing between")
}

func TestTablesGoBetweenTheirMarkersOrNowhere(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte("a\n<!-- pair: begin -->\nold\n<!-- pair: end -->\nb\n"), 0o600))
	require.NoError(t, putTables(page, map[string]string{"pair": "new\n"}))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, "a\n<!-- pair: begin -->\nnew\n<!-- pair: end -->\nb\n", string(text))
	require.ErrorContains(t, putTables(page, map[string]string{"idle": "new\n"}), "the markers of idle are missing")
}
