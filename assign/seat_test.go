package assign_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A stuck link hangs in some kinds of calls, until their contexts end.
type stuck struct {
	*link
	looks, renewals, notices, releases atomic.Bool
}

func (s *stuck) set(hangs bool) {
	for _, is := range []*atomic.Bool{&s.looks, &s.renewals, &s.notices, &s.releases} {
		is.Store(hangs)
	}
}

func (s *stuck) Release(ctx context.Context, e store.Ending) (store.Ended, error) {
	if s.releases.Load() {
		<-ctx.Done()
		return store.Ended{}, ctx.Err()
	}
	return s.link.Release(ctx, e)
}

func (s *stuck) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	if s.looks.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.link.Look(ctx, keys)
}

func (s *stuck) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	if s.renewals.Load() {
		<-ctx.Done()
		all := make([]store.Renewed, len(batch))
		for i := range all {
			all[i].Err = ctx.Err()
		}
		return all
	}
	return s.link.Renew(ctx, batch)
}

func (s *stuck) Notify(ctx context.Context, all ...store.Notice) error {
	if s.notices.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.link.Notify(ctx, all...)
}

func TestADrainWhoseFirstNoticeIsLostLeavesNoPartitionIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 16)
		f.clientOpts = []mongolock.ClientOption{mongolock.TTL(5 * time.Minute)}
		b := f.start("b")
		s := &stuck{}
		f.through = func(l *link) store.Store { s.link = l; return s }
		a := f.start("a")
		time.Sleep(time.Minute)
		f.counted()
		s.notices.Store(true)
		time.AfterFunc(time.Second, func() { s.notices.Store(false) })
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
			f, s := newFleet(t, memstore.New(), 16), &stuck{}
			f.clientOpts = []mongolock.ClientOption{mongolock.TTL(5 * time.Minute)}
			f.through = func(l *link) store.Store { s.link = l; return s }
			a := f.start("a")
			f.through = nil
			time.Sleep(time.Minute)
			b := f.start("b", loading(time.Hour)) // it is never ready
			time.Sleep(time.Minute)
			began := time.Now()
			a.cancel()
			time.Sleep(after)
			s.set(true)
			err := <-a.over
			a.over <- err
			assert.Less(t, time.Since(began), 21*time.Second, "Drain and some ten seconds")
			s.set(false)
			f.stop(a, b)
		})
	}
}

// The worker b prepares a partition, and has no seat any longer when that is done.
func TestWhatIsPreparedDoesNotBeginAfterTheSeatsEnd(t *testing.T) {
	for called, test := range map[string]struct {
		ready time.Duration
		leave func(s *stuck, end func())
	}{
		"it is lost while the seats are read": {34 * time.Second, func(s *stuck, _ func()) {
			s.renewals.Store(true)
			time.Sleep(28300 * time.Millisecond)
			s.looks.Store(true)
		}},
		"it is released, and the notice hangs": {3 * time.Second, func(s *stuck, end func()) {
			s.notices.Store(true)
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
				s := &stuck{}
				f.through = func(l *link) store.Store { s.link = l; return s }
				b := f.startWith("b", work, loading(test.ready))
				time.Sleep(500 * time.Millisecond)
				test.leave(s, b.cancel)
				require.NoError(t, assign.Resize(t.Context(), a.client, name, 8))
				time.Sleep(30 * time.Second)
				mu.Lock()
				assert.Equal(t, map[int]int{16: 0, 8: 8}, busy)
				mu.Unlock()
				s.set(false)
				f.stop(a, b)
			})
		})
	}
}
