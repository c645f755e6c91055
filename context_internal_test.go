package mongolock

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/mongolock/mongolock/store/memstore"
)

func TestManyContextsOfALongLeaseDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewWithStore(memstore.New())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		l, err := c.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			job, cancel := context.WithCancel(t.Context())
			l.Context(job)
			cancel()
			l.Context(context.Background()) // has no end of its own
		}
		synctest.Wait()
		l.mu.Lock()
		n := len(l.contexts.open)
		l.mu.Unlock()
		if n > 1 {
			t.Errorf("%d contexts are kept", n)
		}
	})
}
