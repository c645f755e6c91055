package memmongo_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
)

// takes is a server whose commands take that long: those that modify a document, and the insertion of a notice.
func takes(modify, notice time.Duration) memmongo.Work {
	return memmongo.Work{Flush: 2 * time.Millisecond, Takes: func(c docdb.Command) time.Duration {
		switch {
		case c.Name == "findAndModify":
			return modify
		case c.Name == "insert" && strings.HasSuffix(c.Coll(), ".wake"):
			return notice
		}
		return 0
	}}
}

// On a busy server a notice may be there before the release that it tells of, which is sent beside it.
var servers = map[string]memmongo.Work{
	"a notice comes after its release": takes(time.Millisecond, 1500*time.Microsecond),
	overtakes:                          takes(3*time.Millisecond, 500*time.Microsecond),
}

const overtakes = "a notice overtakes its release"

// handoffs lets one process release a key for which another one waits, n times with a pause after each, and returns what is
// sent from the release to the grant.
func handoffs(t *testing.T, works memmongo.Work, n int, pause time.Duration) (commands []int64, took []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, sent: make([]atomic.Int64, 2)}
		server := memmongo.New()
		server.Works(works)
		first, second := c.process(server, 0), c.process(server, 1)
		handOver := func(key string) {
			lease, err := first.Acquire(t.Context(), key)
			require.NoError(t, err)
			granted := make(chan *mongolock.Lease)
			go func() {
				lease, err := second.Acquire(t.Context(), key)
				assert.NoError(t, err)
				granted <- lease
			}()
			time.Sleep(2 * time.Second) // virtual: it waits
			before, began := c.sent[0].Load()+c.sent[1].Load(), time.Now()
			go func() { assert.NoError(t, lease.Release()) }()
			next := <-granted
			took = append(took, time.Since(began))
			commands = append(commands, c.sent[0].Load()+c.sent[1].Load()-before)
			require.NoError(t, next.Release())
		}
		handOver("another") // each has made its index, and knows the collection of notices
		commands, took = nil, nil
		for range n {
			handOver("key")
			time.Sleep(pause) // virtual: nobody wants the key
		}
		require.NoError(t, first.Close())
		require.NoError(t, second.Close())
		for _, link := range c.links {
			t.Cleanup(link.Close)
		}
	})
	return commands, took
}

// Five from the release of a key to its grant: the release, twice if nobody was known to wait; the notice, and the next read of
// the one that hears it; its claim, once more if it came before the release.
func TestAHandoffTakesFiveCommands(t *testing.T) {
	for name, works := range servers {
		t.Run(name, func(t *testing.T) {
			for _, pause := range []time.Duration{0, 30 * time.Second, 2 * time.Minute} {
				commands, took := handoffs(t, works, 4, pause)
				t.Logf("a pause of %v: %v commands, %v", pause, commands, took)
				for i, n := range commands {
					assert.LessOrEqual(t, n, int64(5), "handoff %d, a pause of %v", i, pause)
				}
			}
		})
	}
}

// In a loop each joins the line again, and of more than two the one behind is told, too.
func TestALoopTakesFiveOrSixCommandsAGrant(t *testing.T) {
	for name, works := range servers {
		for n, most := range map[int]float64{2: 5, 32: 6} {
			if name == overtakes {
				most++ // for the claim that came before the release
				if n > 2 {
					most += 1.5 // and for a look, as each waits for more than half a second
				}
			}
			grants, commands, even, _ := herdOn(t, works, 4*time.Second, n)
			t.Logf("%s, %d in a loop: %.0f grants, %.2f commands each, Jain's index %.4f", name, n, grants, commands, even)
			assert.LessOrEqual(t, commands, most+0.1, "%s, of %d", name, n)
			assert.GreaterOrEqual(t, even, 0.99, "%s, of %d", name, n)
		}
	}
}
