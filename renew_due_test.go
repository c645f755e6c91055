package mongolock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
)

// Each of 200 leases is renewed or detached by its holder shortly before the client renews it, so
// nothing of the first bulk is left to the client. The bulks behind that one hold other leases.
func TestManyLeasesMayFallDueWhileTheirHoldersRenewThem(t *testing.T) {
	for how, call := range map[string]func(t *testing.T, l *mongolock.Lease) (then error){
		"Renew": func(t *testing.T, l *mongolock.Lease) error {
			assert.NoError(t, l.Renew(t.Context()))
			return nil
		},
		"Detach": func(t *testing.T, l *mongolock.Lease) error {
			_, err := l.Detach(t.Context())
			assert.NoError(t, err)
			return mongolock.ErrDetached
		},
	} {
		t.Run(how, func(t *testing.T) {
			lab.Test(t, func(t *testing.T, b *lab.Store) {
				c, start := newClient(t, b), time.Now()
				leases, want := make([]*mongolock.Lease, 300), make([]error, 300)
				for i := range leases {
					leases[i] = acquire(t, c, fmt.Sprint(i))
					time.Sleep(time.Millisecond)
				}
				b.On(lab.Renew, func(ctx context.Context, call *lab.Call) error {
					assert.NotEmpty(t, call.Batch)
					return lab.Slow(time.Second/2, time.Second/2)(ctx, call)
				})
				time.Sleep(10*time.Second - time.Since(start) - time.Millisecond) // the first is due at 10 s
				var calls sync.WaitGroup
				for i, l := range leases[:200] {
					calls.Go(func() { want[i] = call(t, l) })
				}
				calls.Wait()
				time.Sleep(2 * time.Minute)
				for i, l := range leases {
					assert.ErrorIs(t, l.Err(), want[i], l.Key())
				}
			})
		})
	}
}
