package assign_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// findsIn returns how many of some histories are wrong, and one of the complaints.
func findsIn(t *testing.T, broken func(*link)) (found int, complaint string) {
	t.Helper()
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			if wrong := play(t, seed, memstore.New(), func(f *fleet) { f.broken = broken }); wrong != "" {
				found++
				complaint, _, _ = strings.Cut(wrong, "\n")
			}
		})
	}
	return found, complaint
}

func TestControlHistoriesNoticeAStoreThatGrantsPartitionsThatAreHeld(t *testing.T) {
	found, complaint := findsIn(t, func(l *link) {
		l.claim = func(ctx context.Context, c store.Claim) {
			if !strings.HasSuffix(c.Key, "/workers") {
				l.to.Delete(c.Key)
			}
		}
	})
	assert.Positive(t, found)
	assert.Contains(t, complaint, "two workers")
}

func TestControlHistoriesNoticeSeatsThatNeverEnd(t *testing.T) {
	found, complaint := findsIn(t, func(l *link) {
		l.seen = func(s *store.Status) {
			for i := range s.Holders {
				s.Holders[i].ExpireAt = s.Now.Add(l.slow)
			}
		}
	})
	assert.Positive(t, found)
	assert.Contains(t, complaint, "without a worker")
}
