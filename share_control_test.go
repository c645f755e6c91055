package mongolock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// deaf is a store whose joins ignore a waiting writer.
type deaf struct{ *memstore.Store }

func (d deaf) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.Mode != store.Exclusive {
		all, _ := d.Store.Look(ctx, []string{c.Key})
		_ = d.Withdraw(ctx, c.Key, all[0].ExclusiveWantedUntil)
	}
	return d.Store.Acquire(ctx, c)
}

// The control of the test that a stream of readers keeps no writer out: where joins
// ignore its word, it does.
func TestControlReadersThatIgnoreTheWordKeepAWriterOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := deaf{memstore.New()}
		stop := streamOfReaders(t, s, 4*time.Second)
		defer stop()
		time.Sleep(10*time.Second + 700*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if l, err := newClient(t, s).Acquire(ctx, "k"); err == nil {
			t.Errorf("the writer got in at %v: the test shows nothing", time.Now())
			release(t, l)
		}
	})
}
