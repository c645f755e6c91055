package mongolock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
)

// This controls TestAStreamOfOverlappingReadersDoesNotKeepAWriterOut: if readers ignore the
// line, they do keep it out.
func TestControlReadersThatIgnoreTheLineKeepAWriterOut(t *testing.T) {
	lab.Test(t, func(t *testing.T, s *lab.Store) {
		s.On(lab.Acquire, func(ctx context.Context, call *lab.Call) error { // readers join although a writer waits
			if call.Claim.Mode != store.Exclusive {
				all, _ := s.Mem.Look(ctx, []string{call.Key})
				for _, w := range all[0].Line {
					_, _ = s.Mem.Leave(ctx, call.Key, w.Place, false)
				}
			}
			return call.Do()
		})
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
