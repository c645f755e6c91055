package system

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
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

// settle waits until all waiters were refused, stand in line, have looked once more, and listen.
func (p *waitingProcesses) settle() {
	p.t.Helper()
	p.until(time.Now().Add(20*time.Second), "they ask no more", func() bool {
		return total(p.quiet(200*time.Millisecond).Sent) == 0
	})
}

// quiet returns what the busiest process sent since it was last asked. It is left alone for d.
func (p *waitingProcesses) quiet(d time.Duration) (most workerReport) {
	p.t.Helper()
	for _, w := range p.workers {
		w.begin(workerOrder{Do: "nothing", For: d})
	}
	for _, w := range p.workers {
		if report := w.end(); total(report.Sent) >= total(most.Sent) {
			most = report
		}
	}
	return most
}

// atMost fails if a process sent more than so many commands in each time like that.
func (p *waitingProcesses) atMost(commands int, each time.Duration, report workerReport) {
	p.t.Helper()
	times := max(1, report.Over.Seconds()/each.Seconds())
	assert.LessOrEqual(p.t, float64(total(report.Sent)), float64(commands)*times, "in %v a process sent %v", report.Over, report.Sent)
}

// mustBeServed releases the key, and fails unless every waiter had it within most. It returns the
// longest time in which nobody was granted the key.
func (p *waitingProcesses) mustBeServed(most time.Duration) (pause time.Duration) {
	p.t.Helper()
	p.release(p.held)
	released := time.Now()
	for _, w := range p.workers {
		w.begin(workerOrder{Do: "served"})
	}
	grants := []int64{released.UnixNano()}
	for i, w := range p.workers {
		served := w.end()
		assert.Len(p.t, served.Each, p.each, "process %d: served", i)
		assert.LessOrEqual(p.t, time.Unix(0, served.Moment).Sub(released), most, "process %d: until the last was served", i)
		grants = append(grants, served.At...)
	}
	slices.Sort(grants)
	for i := range grants[1:] {
		pause = max(pause, time.Duration(grants[i+1]-grants[i]))
	}
	return pause
}

// Each kind of trouble may lose notices, but no waiter for ever. A waiter that is not told
// sleeps for at least 20 s.
func TestTroubleWithTheFeedLosesNoWaiterOfSeveralProcesses(t *testing.T) {
	// Not parallel: it keeps the server busy.
	notice := offerNotice(strings.Repeat("x", 500))
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
			w.atMost(40, time.Second, w.quiet(time.Second))
			trouble(f)
			w.mustBeServed(feedFound())
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
	w.atMost(40, time.Second, w.quiet(time.Second)) // without a server
	server.Do("restart")
	w.atMost(60, 2*time.Second, w.quiet(2*time.Second))
	f.until(time.Now().Add(10*time.Second), "the server is back", func() bool {
		ctx, cancel := context.WithTimeout(f.ctx(), time.Second)
		defer cancel()
		return f.coll.Database().Client().Ping(ctx, nil) == nil
	})
	w.mustBeServed(min(2*feedSoon(), 18*time.Second))
}

func TestAHundredWaitersInEachOfFourProcessesSendAlmostNothing(t *testing.T) {
	f := newFixtureApart(t, "capped", "atomic")
	w := newWaitingProcesses(f, 4, 100)
	w.quiet(2 * pollMost)
	w.atMost(2, 5*time.Second, w.quiet(5*time.Second))
	pause := w.mustBeServed(pace.Of(20 * time.Second))
	assert.Less(t, pause, pace.Of(900*time.Millisecond), "after a notice that is lost the next passes, a second later")
}
