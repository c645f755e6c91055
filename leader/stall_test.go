package leader_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestALeaderWhoseWorkStallsLeadsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var terms []time.Duration
		var causes []error
		c, err := leader.New(newClient(t, s), "billing", leader.With(mongolock.MaxStall(time.Minute)))
		assert.NoError(t, err)
		_ = c.Run(ctx, func(ctx context.Context, term leader.Term) error {
			began := time.Now()
			for range 3 {
				time.Sleep(50 * time.Second)
				term.Lease().Progress()
			}
			<-ctx.Done()
			terms, causes = append(terms, time.Since(began)), append(causes, context.Cause(ctx))
			if len(terms) == 2 {
				cancel()
			}
			return nil
		})
		assert.Equal(t, []time.Duration{210 * time.Second, 210 * time.Second}, terms)
		for _, cause := range causes {
			assert.ErrorIs(t, cause, mongolock.ErrStalled)
		}
	})
}
