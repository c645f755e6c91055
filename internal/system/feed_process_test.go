package system

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/testserver"
)

// A crowd is several processes in each of which as many wait for a key that this one
// holds.
type crowd struct {
	*mongoRoom
	held    *mongolock.Lease
	workers []worker
	each    int
}

func newCrowd(r *mongoRoom, processes, each int) *crowd {
	r.t.Helper()
	c := &crowd{r, r.acquire(r.client(), "k"), r.workers(processes), each}
	for _, w := range c.workers {
		w.do(workerOrder{Do: "wait", Key: "k", Count: each})
	}
	c.settle()
	return c
}

// settle waits until all have been refused, have left word, have looked once more, and
// listen.
func (c *crowd) settle() {
	c.t.Helper()
	c.until(time.Now().Add(20*time.Second), "they ask no more", func() bool {
		return total(c.quiet(4*mongoLookAgain)) == 0
	})
}

// quiet is how many commands the busiest process sent in so long, of which kinds.
func (c *crowd) quiet(d time.Duration) (most map[string]int) {
	c.t.Helper()
	for _, w := range c.workers {
		w.begin(workerOrder{Do: "nothing", For: d})
	}
	for _, w := range c.workers {
		if sent := w.end().Sent; total(sent) >= total(most) {
			most = sent
		}
	}
	return most
}

// mustBeServed gives the key back, and fails unless all have had it soon.
func (c *crowd) mustBeServed(soon time.Duration) {
	c.t.Helper()
	c.release(c.held)
	released := time.Now()
	for _, w := range c.workers {
		w.begin(workerOrder{Do: "served"})
	}
	for i, w := range c.workers {
		served := w.end()
		if len(served.Each) != c.each {
			c.t.Errorf("process %d: %d of %d were served", i, len(served.Each), c.each)
		}
		if took := time.Unix(0, served.Moment).Sub(released); took > soon {
			c.t.Errorf("process %d: the last was served after %v", i, took)
		}
	}
}

// In none of these a notice is lost for ever: those who wait sleep for 20 s at least
// where nobody tells them.
func TestFeedTroubleLosesNobodyInSeveralProcesses(t *testing.T) {
	// Not parallel: it keeps the server busy.
	notice := freedNotice(strings.Repeat("x", 500))
	for name, trouble := range map[string]func(r *mongoRoom){
		"it is not capped": func(r *mongoRoom) {
			if err := r.wakes().Drop(r.ctx()); err != nil {
				r.t.Fatal(err)
			}
			if _, err := r.wakes().InsertOne(r.ctx(), notice); err != nil {
				r.t.Fatal(err)
			}
		},
		"it is dropped while in use": func(r *mongoRoom) {
			if err := r.wakes().Drop(r.ctx()); err != nil {
				r.t.Fatal(err)
			}
		},
		"it rolls over": func(r *mongoRoom) {
			many := make([]any, 1000)
			for i := range many {
				many[i] = notice
			}
			if _, err := r.wakes().InsertMany(r.ctx(), many); err != nil {
				r.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newMongoRoomApart(t, "capped", "atomic")
			c := newCrowd(r, 4, 5)
			trouble(r)
			if sent := c.quiet(time.Second); total(sent) > 40 {
				t.Errorf("in a second a process sent %v", sent)
			}
			trouble(r)
			c.mustBeServed(feedSoon)
			if r.wakesAre() == feedUncapped {
				r.handsOver(r.client(), r.client(), "k", true, feedSoon) // somebody waits, and it is mended
			}
		})
	}
}

func TestFeedAndFiftyWaitersInFiveProcessesOutliveTheServer(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, "", "capped", "atomic", "process", "crash")
	r := newMongoRoomAt(t, server.URI)
	r.server = mongoApart
	c := newCrowd(r, 5, 10)
	server.Do("kill")
	if sent := c.quiet(time.Second); total(sent) > 40 {
		t.Errorf("in a second without a server a process sent %v", sent)
	}
	server.Do("restart")
	if sent := c.quiet(2 * time.Second); total(sent) > 60 {
		t.Errorf("in the two seconds after, a process sent %v", sent)
	}
	r.until(time.Now().Add(10*time.Second), "the server is back", func() bool {
		ctx, cancel := context.WithTimeout(r.ctx(), time.Second)
		defer cancel()
		return r.coll.Database().Client().Ping(ctx, nil) == nil
	})
	c.mustBeServed(2 * feedSoon)
}

// How little, over two minutes, make bench tells.
func TestFeedAHundredWaitersInEachOfFourProcessesAskNextToNothing(t *testing.T) {
	r := newMongoRoomApart(t, "capped", "atomic")
	c := newCrowd(r, 4, 100)
	c.quiet(2 * mongoPollMost) // and what each looks at once more after its word
	if sent := c.quiet(5 * time.Second); total(sent) > 2 {
		t.Errorf("in five seconds a process sent %v", sent)
	}
	c.mustBeServed(20 * time.Second)
}
