package doclock

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/fewer"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

var stormCount = flag.Int("storms", fewer.Of(40), "how many storms documents go through")

// A storm is a minute of elections of primaries whose clocks are up to 50 s apart, and of
// processes that are cut off while they lock one document by every call there is.
type storm struct {
	seed uint64

	mu      sync.Mutex // protects what follows
	dice    *rand.Rand
	current *mongolock.Lease
	grants  int
	both    int // grants while another lease was live
}

func (w *storm) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dice.IntN(n)
}

func (w *storm) millis(least, most int) time.Duration {
	return time.Duration(least+w.draw(most-least)) * time.Millisecond
}

func (w *storm) granted(l *mongolock.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.Err() != nil {
		return // the reply was late
	}
	w.grants++
	if w.current != nil && w.current.Err() == nil {
		w.both++
	}
	w.current = l
}

// run has three processes work through the storm.
func (w *storm) run(t *testing.T) {
	w.dice = rand.New(rand.NewPCG(w.seed, 7))
	s := newReplicaSet(w.millis(0, 50_000))
	put(t, s.collection(t), order{ID: "o", State: "ready"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var calm atomic.Bool
	var cut [3]atomic.Int64 // until when a process is cut off
	began := time.Now()
	var working sync.WaitGroup
	var all []*Locks[order]
	for i := range cut {
		coll := s.over(t, func(docdb.Command) (time.Duration, bool) {
			left := time.Duration(cut[i].Load()) - time.Since(began)
			if left <= 0 || calm.Load() {
				return 0, true
			}
			return left, w.draw(2) == 0
		})
		locks, err := New[order](coll, With(mongolock.TTL(3*time.Second)), WithMargin(300*time.Millisecond), WithLogger(slog.New(slog.DiscardHandler)), WithOwner(fmt.Sprint("process ", i)))
		require.NoError(t, err)
		all = append(all, locks)
		working.Go(func() { w.work(ctx, locks) })
	}
	for ctx.Err() == nil {
		time.Sleep(w.millis(200, 5000))
		if w.draw(2) == 0 {
			s.Elect(w.millis(0, 50_000))
		}
		cut[w.draw(len(cut))].Store(int64(time.Since(began) + w.millis(500, 8000)))
	}
	calm.Store(true)
	working.Wait()
	for _, l := range all {
		_ = l.Close()
	}
}

// work locks the document again and again, and holds it for a while.
func (w *storm) work(ctx context.Context, locks *Locks[order]) {
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, 10*time.Second)
		var doc *Document[order]
		var err error
		switch w.draw(3) {
		case 0:
			doc, err = locks.Acquire(within, ID("o"))
		case 1:
			doc, err = locks.TryAcquire(within, ID("o"))
		case 2:
			var c *Claimed[order]
			if c, err = locks.Claim(within, ready, nil); err == nil {
				doc = c.doc
			}
		}
		cancel()
		if err == nil {
			w.granted(doc.Lease())
			select {
			case <-doc.Lease().Done():
			case <-time.After(w.millis(0, 6000)):
			}
			if w.draw(2) == 0 {
				_ = doc.SaveAndRelease(ctx)
			}
			_ = doc.Release()
		}
		time.Sleep(w.millis(1, 500))
	}
}

// storms runs that many storms and returns the grants and how many of them came while
// another lease was live.
func storms(t *testing.T, n int) (grants, both int) {
	t.Helper()
	for seed := range uint64(n) {
		w := &storm{seed: seed}
		synctest.Test(t, w.run)
		grants += w.grants
		both += w.both
		if w.both > 0 {
			t.Logf("seed %d: %d of %d grants while another lease was live", seed, w.both, w.grants)
		}
	}
	return grants, both
}

func TestNoTwoLeasesOfADocumentLiveAtOnceWhateverTheClocks(t *testing.T) {
	grants, both := storms(t, *stormCount)
	assert.Zero(t, both)
	assert.Greater(t, grants, 5**stormCount)
}
