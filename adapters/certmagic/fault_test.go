package certmagiclock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	certmagiclock "github.com/mongolock/mongolock/adapters/certmagic"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

var errAway = errors.New("the database is away")

// A store hangs, refuses, or loses its replies under each call, and then works again: the call ends by its context or its
// bound, and says why. Nothing stays locked, in this process or in another.
func TestEveryCallEndsOnAStoreThatFailsAndLeavesNothingLocked(t *testing.T) {
	calls := map[string]func(context.Context, *certmagiclock.Locker) error{
		"Lock": func(ctx context.Context, l *certmagiclock.Locker) error { return l.Lock(ctx, issuance) },
		"TryLock": func(ctx context.Context, l *certmagiclock.Locker) error {
			got, err := l.TryLock(ctx, issuance)
			assert.False(t, got)
			return err
		},
		"Unlock": func(ctx context.Context, l *certmagiclock.Locker) error { return l.Unlock(ctx, issuance) },
		"RenewLockLease": func(ctx context.Context, l *certmagiclock.Locker) error {
			return errors.Join(l.RenewLockLease(ctx, issuance, time.Hour), l.Unlock(ctx, issuance))
		},
	}
	for call, made := range calls {
		for fault, hook := range map[string]lab.Hook{"hangs": lab.Hang, "refuses": lab.Fail(errAway), "loses replies": lab.LoseReply(errAway)} {
			t.Run(call+", "+fault, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mem := memstore.New()
					link := lab.New(mem)
					one, other := locker(t, lab.Client(t, link)), locker(t, lab.Client(t, mem))
					if call == "Unlock" || call == "RenewLockLease" {
						require.NoError(t, one.Lock(t.Context(), issuance))
					}
					link.All(hook)
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					err := made(ctx, one)
					t.Log(time.Since(began), err)
					assert.Less(t, time.Since(began), 20*time.Second)
					if fault == "hangs" {
						assert.ErrorIs(t, err, context.DeadlineExceeded)
					} else {
						assert.ErrorIs(t, err, errAway)
					}
					time.Sleep(10 * time.Second) // virtual: what the fault has left is cleaned up or runs out
					link.All(nil)
					ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					require.NoError(t, other.Lock(ctx, issuance))
					require.NoError(t, other.Unlock(ctx, issuance))
					require.NoError(t, one.Lock(ctx, issuance))
					require.NoError(t, one.Unlock(ctx, issuance))
				})
			})
		}
	}
}
