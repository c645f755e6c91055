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

// A wordIgnoringStore lets readers join although a writer waits.
type wordIgnoringStore struct{ *memstore.Store }

func (s wordIgnoringStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.Mode != store.Exclusive {
		all, _ := s.Look(ctx, []string{c.Key})
		_ = s.Withdraw(ctx, c.Key, all[0].ExclusiveWantedUntil)
	}
	return s.Store.Acquire(ctx, c)
}

// This controls TestAStreamOfOverlappingReadersDoesNotKeepAWriterOut: if readers ignore
// the writer's word, they do keep it out.
func TestControlReadersThatIgnoreTheWordKeepAWriterOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := wordIgnoringStore{memstore.New()}
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
