package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachOfManyHoldersIsSilentSinceItsBeatWasFirstSeen(t *testing.T) {
	var s sights
	seen := make([]HolderState, 1_000)
	for i := range seen {
		seen[i] = HolderState{ID: fmt.Sprint("ID-", (i*7919)%len(seen)), Beat: int64(i), TTL: time.Minute}
	}
	first := Moment(time.Hour)
	s.saw("k", seen, first)
	seen[17].Beat = -1
	later := first.Add(time.Minute)
	s.saw("k", seen, later)

	for i, m := range seen {
		silence := later.Sub(first)
		if i == 17 {
			silence = 0
		}
		require.Equal(t, silence, s.still("k", m, later), "%s", m.ID)
	}
	assert.Zero(t, s.still("k", HolderState{ID: "another"}, later))
}
