package mongobase

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
)

func TestEachOfManyHoldersIsSilentSinceItsBeatWasFirstSeen(t *testing.T) {
	var s sights
	seen := make([]Mark, 1_000)
	for i := range seen {
		seen[i] = Mark{ID: fmt.Sprint("ID-", (i*7919)%len(seen)), Beat: int64(i), TTL: time.Minute}
	}
	first := mongoclock.Moment(time.Hour)
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
	assert.Zero(t, s.still("k", Mark{ID: "another"}, later))
}
