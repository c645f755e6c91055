package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestALongTableIsWrittenInParts(t *testing.T) {
	var written strings.Builder
	p := &printer{w: &written}
	p.onTerminal([]string{"key", "owner"})
	const rows = 5*partRows + 7
	for i := range rows {
		require.NoError(t, p.row(nil, fmt.Sprint("key-", i), "me"))
		require.GreaterOrEqual(t, strings.Count(written.String(), "\n"), i+1-partRows, "rows in memory")
	}
	require.NoError(t, p.flush())
	require.NoError(t, p.flush(), "with nothing left")
	lines := strings.Split(strings.TrimSuffix(written.String(), "\n"), "\n")
	require.Len(t, lines, rows+1)
	assert.Equal(t, "KEY      OWNER", lines[0], "once")
	assert.Equal(t, "key-0    me", lines[1])
	assert.Equal(t, "key-5006  me", lines[rows], "as wide as it takes")
}
