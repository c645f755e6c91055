package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
)

// They run out by themselves: to try each would take a hung store hours.
func TestLostLeasesThatRanOutAreLeftToThemselvesWhileReleasesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLinkStore()
		s.releases(lab.Hang)
		loseAll(t, s)
		time.Sleep(time.Minute) // virtual
		assert.LessOrEqual(t, s.Count(lab.Release), 50, "four and some repetitions every five seconds, for a TTL")
		s.releases(nil)
		s.On(lab.Renew, nil)
		late := acquire(t, newClient(t, s), "another", mongolock.NoRenewal(), mongolock.TTL(10*time.Second))
		<-late.Done()
		time.Sleep(5 * time.Second) // virtual
		mustBeFree(t, s.Mem, "another")
	})
}
