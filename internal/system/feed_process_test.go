package system

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/testserver"
)

// waitingProcesses are several processes with as many waiters each for a key that the test
// holds.
type waitingProcesses struct {
	*fixture
	held    *mongolock.Lease
	workers []worker
	each    int
}

func newWaitingProcesses(f *fixture, processes, each int) *waitingProcesses {
	f.t.Helper()
	p := &waitingProcesses{f, f.acquire(f.client(), "k"), f.workers(processes), each}
	for _, w := range p.workers {
		w.do(workerOrder{Do: "wait", Key: "k", Count: each})
	}
	p.settle()
	return p
}

// settle waits until all waiters were refused, have left their word, have looked once more,
// and listen.
func (p *waitingProcesses) settle() {
	p.t.Helper()
	p.until(time.Now().Add(20*time.Second), "they ask no more", func() bool {
		return total(p.quiet(4*lookAgain)) == 0
	})
}

// quiet returns, by kind, the commands that the busiest process sent within d.
func (p *waitingProcesses) quiet(d time.Duration) (most map[string]int) {
	p.t.Helper()
	for _, w := range p.workers {
		w.begin(workerOrder{Do: "nothing", For: d})
	}
	for _, w := range p.workers {
		if sent := w.end().Sent; total(sent) >= total(most) {
			most = sent
		}
	}
	return most
}

// mustBeServed releases the key, and fails unless every waiter had it within most.
func (p *waitingProcesses) mustBeServed(most time.Duration) {
	p.t.Helper()
	p.release(p.held)
	released := time.Now()
	for _, w := range p.workers {
		w.begin(workerOrder{Do: "served"})
	}
	for i, w := range p.workers {
		served := w.end()
		assert.Len(p.t, served.Each, p.each, "process %d: served", i)
		assert.LessOrEqual(p.t, time.Unix(0, served.Moment).Sub(released), most, "process %d: until the last was served", i)
	}
}

// Each kind of trouble may lose notices, but no waiter for ever. A waiter that is not told
// sleeps for at least 20 s.
func TestTroubleWithTheFeedLosesNoWaiterOfSeveralProcesses(t *testing.T) {
	// Not parallel: it keeps the server busy.
	notice := freedNotice(strings.Repeat("x", 500))
	for name, trouble := range map[string]func(f *fixture){
		"it is not capped": func(f *fixture) {
			if err := f.wakes().Drop(f.ctx()); err != nil {
				f.t.Fatal(err)
			}
			if _, err := f.wakes().InsertOne(f.ctx(), notice); err != nil {
				f.t.Fatal(err)
			}
		},
		"it is dropped while in use": func(f *fixture) {
			if err := f.wakes().Drop(f.ctx()); err != nil {
				f.t.Fatal(err)
			}
		},
		"it rolls over": func(f *fixture) {
			many := make([]any, 1000)
			for i := range many {
				many[i] = notice
			}
			if _, err := f.wakes().InsertMany(f.ctx(), many); err != nil {
				f.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureApart(t, "capped", "atomic")
			w := newWaitingProcesses(f, 4, 5)
			trouble(f)
			sent := w.quiet(time.Second)
			assert.LessOrEqual(t, total(sent), 40, "in a second a process sent %v", sent)
			trouble(f)
			w.mustBeServed(feedSoon())
			if f.wakesAre() == feedUncapped {
				f.handsOver(f.client(), f.client(), "k", true, feedSoon()) // a wait repairs it
			}
		})
	}
}

func TestFiftyWaitersInFiveProcessesSurviveAKillOfTheServer(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, "", "capped", "atomic", "process", "crash")
	f := newFixtureAt(t, server.URI)
	f.server = ofItsOwn
	w := newWaitingProcesses(f, 5, 10)
	server.Do("kill")
	sent := w.quiet(time.Second)
	assert.LessOrEqual(t, total(sent), 40, "in a second without a server a process sent %v", sent)
	server.Do("restart")
	sent = w.quiet(2 * time.Second)
	assert.LessOrEqual(t, total(sent), 60, "in the two seconds after, a process sent %v", sent)
	f.until(time.Now().Add(10*time.Second), "the server is back", func() bool {
		ctx, cancel := context.WithTimeout(f.ctx(), time.Second)
		defer cancel()
		return f.coll.Database().Client().Ping(ctx, nil) == nil
	})
	w.mustBeServed(2 * feedSoon())
}

// `make bench` tells how little they send over two minutes.
func TestAHundredWaitersInEachOfFourProcessesSendAlmostNothing(t *testing.T) {
	f := newFixtureApart(t, "capped", "atomic")
	w := newWaitingProcesses(f, 4, 100)
	w.quiet(2 * pollMost) // and until each has looked once more after its word
	sent := w.quiet(5 * time.Second)
	assert.LessOrEqual(t, total(sent), 2, "in five seconds a process sent %v", sent)
	w.mustBeServed(20 * time.Second)
}
