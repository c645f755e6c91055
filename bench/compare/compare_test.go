package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFairnessIsOneIfAllHaveTheSameAndAnEighthIfOneOfEightHasAll(t *testing.T) {
	assert.InDelta(t, 1, jain([]float64{3, 3, 3}), 1e-9)
	assert.InDelta(t, 1.0/8, jain([]float64{9, 0, 0, 0, 0, 0, 0, 0}), 1e-9)
	assert.Zero(t, jain([]float64{0, 0}), "nobody had it")
}

func TestTheTableHasOneNumberOfEachKind(t *testing.T) {
	r := &rival{contender: contender{name: "a lock", server: onDisk}, idle: 640}
	r.pair, r.handOver[0], r.grants, r.fairness = figure{0.003, 0.001, 2}, figure{0.02}, figure{411}, figure{0.93}
	assert.Contains(t, summary([]*rival{r}), "\n| a lock | Redis, durable | 3.00 | 20.0 | 0.00 | 640 | 411 | 0.93 |\n")
}

func TestTablesGoBetweenTheirMarkersOrNowhere(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte("a\n<!-- summary: begin -->\nold\n<!-- summary: end -->\nb\n"), 0o600))
	require.NoError(t, putTables(page, map[string]string{"summary": "new\n"}))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, "a\n<!-- summary: begin -->\nnew\n<!-- summary: end -->\nb\n", string(text))
	require.ErrorContains(t, putTables(page, map[string]string{"machine": "new\n"}), "the markers of machine are missing")
}
