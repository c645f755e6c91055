package system

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
)

// The cursor on the wake-ups waits at the server for up to half a minute. In a pool of one
// connection it would keep the renewals out meanwhile.
func TestAWaiterDoesNotTakeTheOnlyConnectionOfItsPool(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]uint64{"one connection": 1, "two connections": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixtureApart(t, "capped")
			var log logBuffer
			conn := f.connect(f.uri, func(o *options.ClientOptions) { o.SetMaxPoolSize(size) })
			ttl := pace.Of(3 * time.Second)
			c := f.clientOn(conn, mongolock.TTL(ttl), log.option())
			own, others := f.acquire(c, "own"), f.acquire(f.client(), "waited for")
			waiter := f.inBackground(f.ctx(), c, "waited for")
			f.waits(c, "waited for")
			time.Sleep(ttl * 4 / 3) // longer than the TTL of what is held
			f.mustHold(own)
			released := time.Now()
			f.release(others)
			got := f.granted(waiter)
			f.within(pollPause+slack, got.when.Sub(released), "from the release to the grant")
			f.release(got.lease)
			again := f.inBackground(f.ctx(), c, "own")
			f.waits(c, "own")
			f.release(own)
			f.release(f.granted(again).lease)
			assert.Equal(t, 2-int(size), log.count("maxPoolSize is 1"), "lines about it in %s", log.lines())
		})
	}
}
