package simulation

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Goroutines of one instant run in any order: if the waits depended on it, the same seed
// would give two histories.
func TestCallsOfOneInstantFindThePrimaryAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(268, Settings{Together: true, Servers: replicaSet})
		d := &deployment{client: &process{world: w}}
		leader := w.cluster.leader
		w.cluster.leader = nil
		time.AfterFunc(time.Second, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.cluster.leader = leader
		})
		var found [2]time.Duration
		var calls sync.WaitGroup
		for i := range found {
			calls.Go(func() {
				_, err := d.SelectServer(t.Context(), nil)
				assert.NoError(t, err)
				found[i] = w.since()
			})
		}
		calls.Wait()
		assert.Greater(t, found[0], time.Second)
		assert.Equal(t, found[0], found[1])
	})
}
