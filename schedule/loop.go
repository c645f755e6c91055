package schedule

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/store"
)

// Run runs the jobs of this process until ctx ends. Then the contexts of its runs end too
// (see WithGrace), and Run returns nil once they have returned. If the database cannot be
// reached, Run waits for it. Run fails at once, before it runs a job, if the Scheduler is running already
// (ErrRunning), if the collection has another document in a job's place (store.ErrForeign), or
// if the plan of a job cannot be read here (ErrPlan). It may be called again.
func (s *Scheduler) Run(ctx context.Context) error {
	client, err := mongolock.NewWithStore(s.runs, s.clientOptions()...)
	if err != nil {
		return err
	}
	if err := s.start(client); err != nil {
		return errors.Join(err, client.Close())
	}
	runs, stop := s.outliving(ctx)
	var work sync.WaitGroup
	polling, endPolling := context.WithCancel(ctx)
	work.Go(func() { s.poll(polling) })
	err = s.loop(ctx, runs, &work)
	endPolling()
	work.Wait()
	stop()
	s.stop()
	if left := errors.Join(client.Close(), s.runs.endRest(ctx)); left != nil {
		s.logger.Warn("schedule: could not record the end of every run; unrecorded runs will expire", "error", left)
	}
	return err
}

// start makes the loop read every job again, because what is known may be old.
func (s *Scheduler) start(client *mongolock.Client) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		return ErrRunning
	}
	s.running, s.client = true, client
	s.told, _ = inside.Observer(client).(mongolock.Observer)
	s.queue, s.fresh = nil, nil
	for _, j := range s.jobs {
		j.forget()
		s.fresh = append(s.fresh, j)
	}
	return nil
}

// startAgain makes the loop read the jobs again, after the store's clock has stepped back.
// It leaves out a job that a worker serves: its next claim shows the clock's step.
func (s *Scheduler) startAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.queue[:0]
	for _, it := range s.queue {
		if it.task == claimNext {
			s.fresh = append(s.fresh, it.job)
		} else {
			rest = append(rest, it)
		}
	}
	clear(s.queue[len(rest):])
	s.queue = rest
	heap.Init(&s.queue)
}

func (s *Scheduler) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.client = false, nil
}

// loop serves all jobs with one goroutine and one timer. Each item that is due gets a goroutine
// of its own; there are at most as many of these as workers.
func (s *Scheduler) loop(ctx, runs context.Context, work *sync.WaitGroup) error {
	workers := make(chan struct{}, s.workers)
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := newBackoff()
	last := s.store.Now()
	for first := true; ctx.Err() == nil; {
		if now := s.store.Now(); now.Before(last.Add(-wrongBy)) {
			s.startAgain()
			last = now
		} else {
			last = later(last, now)
		}
		var wait time.Duration
		err := s.meet(ctx)
		left := errors.Is(err, store.ErrForeign) || errors.Is(err, ErrPlan) // single jobs, which is told; the others go on
		switch {
		case left && first:
			return err
		case ctx.Err() != nil:
		case err != nil && !left:
			s.logger.Warn("schedule: cannot read the jobs", "error", err)
			wait = pause.Next()
		default:
			first = false
			pause.Reset()
			if wait = s.untilDue(); wait > 0 {
				break
			}
			if s.enter(ctx, workers) {
				s.begin(ctx, runs, work, workers)
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

// enter waits for a free worker. It reports false if the loop has to check the queue first.
func (s *Scheduler) enter(ctx context.Context, workers chan<- struct{}) bool {
	select {
	case workers <- struct{}{}:
		return true
	case <-s.wake: // a job may be new
	case <-ctx.Done():
	}
	return false
}

// begin has a worker serve the first item that is due.
func (s *Scheduler) begin(ctx, runs context.Context, work *sync.WaitGroup, workers <-chan struct{}) {
	it, due := s.pop()
	if !due { // its job was removed
		<-workers
		return
	}
	work.Go(func() {
		defer func() { <-workers }()
		s.serve(ctx, runs, it)
	})
}

// outliving returns the context of runs, which ends the grace after that of Run.
func (s *Scheduler) outliving(ctx context.Context) (runs context.Context, stop func()) {
	if s.grace == 0 {
		return ctx, func() {}
	}
	runs, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(s.grace):
			cancel(context.Cause(ctx))
		case <-runs.Done():
		}
	})
	return runs, func() { unhook(); cancel(nil) }
}

// meet reads jobs that are new in this process, to find out which due time to claim first. It
// makes the documents of those that have none, and writes new plans, a few at a time.
func (s *Scheduler) meet(ctx context.Context) error {
	for {
		s.mu.Lock()
		fresh := s.fresh[:min(len(s.fresh), chunkSize)]
		s.fresh = s.fresh[len(fresh):]
		s.mu.Unlock()
		if len(fresh) == 0 {
			return nil
		}
		states, err := s.store.Read(ctx, names(fresh), jobs.WithoutPast)
		if err != nil && !errors.Is(err, store.ErrForeign) || len(states) != len(fresh) {
			s.mu.Lock()
			s.fresh = append(s.fresh, slices.DeleteFunc(fresh, func(j *job) bool { return j.removed })...)
			s.mu.Unlock()
			return wrap("read", "", err)
		}
		unread := make([]error, len(fresh))
		sideBySide(len(fresh), func(i int) {
			s.watch(fresh[i], states[i])
			if err := s.aim(ctx, fresh[i], states[i]); errors.Is(err, ErrPlan) {
				unread[i] = err
			}
		})
		if err := errors.Join(append(unread, wrap("read", "", err))...); err != nil {
			return err
		}
	}
}

func names(of []*job) []string {
	all := make([]string, len(of))
	for i, j := range of {
		all[i] = j.name
	}
	return all
}

// jittered returns when to claim a due time: a random part of the jitter after it, but before
// the next one.
func (s *Scheduler) jittered(j *job, at time.Time) time.Time {
	if s.jitter <= 0 {
		return at
	}
	most := min(s.jitter, j.after(at).Sub(at)/10*9)
	return at.Add(rand.N(max(1, most)))
}

// newBackoff makes the pauses after a failed claim or read.
func newBackoff() *backoff.Backoff { return backoff.New(100*time.Millisecond, 10*time.Second) }
