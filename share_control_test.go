package mongolock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A lineIgnoringStore lets readers join although a writer waits.
type lineIgnoringStore struct{ *memstore.Store }

func (s lineIgnoringStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.Mode != store.Exclusive {
		all, _ := s.Look(ctx, []string{c.Key})
		for _, w := range all[0].Line {
			_, _ = s.Leave(ctx, c.Key, w.Place, false)
		}
	}
	return s.Store.Acquire(ctx, c)
}

// This controls TestAStreamOfOverlappingReadersDoesNotKeepAWriterOut: if readers ignore the
// line, they do keep it out.
func TestControlReadersThatIgnoreTheLineKeepAWriterOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lineIgnoringStore{memstore.New()}
		stop := streamOfReaders(t, s, 4*time.Second)
		defer stop()
		time.Sleep(10*time.Second + 700*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		l, err := newClient(t, s).Acquire(ctx, "k")
		assert.ErrorIs(t, err, context.DeadlineExceeded, "the writer got in, so the test proves nothing")
		if l != nil {
			release(t, l)
		}
	})
}
