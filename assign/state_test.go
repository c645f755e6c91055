package assign_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestADrainWhoseFirstNoticeIsLostLeavesNoPartitionIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		f.clientOpts = []mongolock.ClientOption{mongolock.TTL(5 * time.Minute)}
		b := f.start("b")
		a := f.start("a")
		time.Sleep(time.Minute)
		f.counted()
		a.link.hangs(lab.Notify)
		time.AfterFunc(time.Second, func() { a.link.hangs() })
		f.stop(a)
		time.Sleep(time.Second)
		require.Equal(t, map[string]int{"b": 16}, f.shares())
		_, gaps := f.counted()
		assert.Less(t, slices.Max(gaps), handoff)
		f.stop(b)
	})
}

func TestADrainEndsInTimeAlthoughTheStoreHangs(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 9 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, memstore.New(), 16)
			f.clientOpts = []mongolock.ClientOption{mongolock.TTL(5 * time.Minute)}
			a := f.start("a")
			time.Sleep(time.Minute)
			b := f.start("b", loading(time.Hour)) // it is never ready
			time.Sleep(time.Minute)
			began := time.Now()
			a.cancel()
			time.Sleep(after)
			a.link.hangs(lab.Look, lab.Renew, lab.Notify, lab.Release)
			err := <-a.over
			a.over <- err
			assert.Less(t, time.Since(began), 21*time.Second, "Drain and some ten seconds")
			a.link.hangs()
			f.stop(a, b)
		})
	}
}

// The worker b prepares a partition, and has no seat any longer when that is done.
func TestWhatIsPreparedDoesNotBeginAfterTheSeatsEnd(t *testing.T) {
	for called, test := range map[string]struct {
		ready time.Duration
		leave func(l *link, end func())
	}{
		"it is lost while the seats are read": {34 * time.Second, func(l *link, _ func()) {
			l.hangs(lab.Renew)
			time.Sleep(28300 * time.Millisecond)
			l.hangs(lab.Renew, lab.Look)
		}},
		"it is released, and the notice hangs": {3 * time.Second, func(l *link, end func()) {
			l.hangs(lab.Notify)
			end()
			time.Sleep(100 * time.Millisecond)
		}},
	} {
		t.Run(called, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, memstore.New(), 16)
				var mu sync.Mutex
				busy := map[int]int{} // by the number of partitions, how many are worked on
				work := func(ctx context.Context, p assign.Partition) error {
					mu.Lock()
					busy[p.N]++
					assert.False(t, busy[16] > 0 && busy[8] > 0)
					mu.Unlock()
					<-ctx.Done()
					mu.Lock()
					defer mu.Unlock()
					busy[p.N]--
					return nil
				}
				a := f.startWith("a", work)
				time.Sleep(time.Second)
				b := f.startWith("b", work, loading(test.ready))
				time.Sleep(500 * time.Millisecond)
				test.leave(b.link, b.cancel)
				require.NoError(t, assign.Resize(t.Context(), a.client, name, 8))
				time.Sleep(30 * time.Second)
				mu.Lock()
				assert.Equal(t, map[int]int{16: 0, 8: 8}, busy)
				mu.Unlock()
				b.link.hangs()
				f.stop(a, b)
			})
		})
	}
}
