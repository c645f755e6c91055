package assign_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// findsIn returns what is wrong in the first of some histories in which anything is.
func findsIn(t *testing.T, broken func(*link)) (complaint string) {
	t.Helper()
	for seed := uint64(0); seed < 30 && complaint == ""; seed++ {
		synctest.Test(t, func(t *testing.T) {
			complaint, _, _ = strings.Cut(play(t, seed, memstore.New(), func(f *fleet) { f.broken = broken }), "\n")
		})
	}
	return complaint
}

func TestControlHistoriesNoticeAStoreThatGrantsPartitionsThatAreHeld(t *testing.T) {
	complaint := findsIn(t, func(l *link) {
		l.claim = func(c store.Claim) {
			if !strings.HasSuffix(c.Key, "/workers") {
				l.Mem.Delete(c.Key)
			}
		}
	})
	assert.Contains(t, complaint, "two workers")
}

func TestControlHistoriesNoticeSeatsThatNeverEnd(t *testing.T) {
	complaint := findsIn(t, func(l *link) {
		l.seen = func(s *store.Status) {
			for i := range s.Holders {
				s.Holders[i].ExpireAt = s.Now.Add(l.slow)
			}
		}
	})
	assert.Contains(t, complaint, "without a worker")
}
