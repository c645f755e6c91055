package mongolock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// One that was told before the release, and asks again and again, reads the key meanwhile: the
// read puts its next claim off to when its place has to be kept. No lost notice, no fault.
func TestAReadBetweenAnEarlyNoticeAndTheRelease(t *testing.T) {
	for before := 40 * time.Millisecond; before < 250*time.Millisecond; before += 40 * time.Millisecond {
		t.Run(before.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New()
				first, rival := lab.New(mem), lab.New(mem)
				c := newClient(t, first)
				gate := acquire(t, newClient(t, mem), "k", mongolock.TTL(time.Hour))
				holder := inBackground(t.Context(), c, "k", mongolock.TTL(time.Hour))
				time.Sleep(time.Second)
				w := inBackground(t.Context(), newClient(t, rival), "k", mongolock.TTL(time.Hour))
				time.Sleep(time.Second)
				release(t, gate)
				h := <-holder // its grant shows the rival in line
				require.NoError(t, h.err)
				time.Sleep(5 * time.Second)
				first.All(func(_ context.Context, call *lab.Call) error {
					if call.Op == lab.Release {
						time.Sleep(240 * time.Millisecond) // a slow network
					}
					_ = call.Do()
					return nil
				})
				require.NoError(t, mem.Notify(t.Context(), store.Notice{})) // as when the feed is opened again
				time.Sleep(before)
				start := time.Now()
				release(t, h.lease)
				if l := within(t, "told early", start, w, time.Second); l != nil {
					release(t, l)
				}
				t.Log(rival.Counts())
			})
		})
	}
}
