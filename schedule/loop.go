package schedule

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/store"
)

// Run runs the jobs of this process until ctx ends. Then the contexts of its runs end too
// (see WithGrace), and Run returns nil once they have returned. If the database cannot be
// reached, Run waits for it. Run fails at once if the Scheduler is running already
// (ErrRunning), or if the collection has another document in a job's place
// (store.ErrForeign). It may be called again.
func (s *Scheduler) Run(ctx context.Context) error {
	client, err := mongolock.NewWithStore(s.engine, s.clientOptions()...)
	if err != nil {
		return err
	}
	if err := s.start(client); err != nil {
		return errors.Join(err, client.Close())
	}
	runs, stop := s.outliving(ctx)
	var work sync.WaitGroup
	err = s.loop(ctx, runs, &work)
	work.Wait()
	stop()
	s.stop()
	if left := client.Close(); left != nil {
		s.logger.Warn("schedule: the database could not be told of everything that has ended, which runs out by itself", "error", left)
	}
	return err
}

// start makes the loop look up every job again, because what is known may be old.
func (s *Scheduler) start(client *mongolock.Client) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		return ErrRunning
	}
	s.running, s.client, s.guard = true, client, guardOf(client)
	s.queue, s.fresh = nil, nil
	for _, j := range s.jobs {
		j.forget()
		s.fresh = append(s.fresh, j)
	}
	return nil
}

// startAgain makes the loop look up the jobs again, after the store's clock has stepped back.
// It leaves out a job that a worker serves: its next claim shows the clock's step.
func (s *Scheduler) startAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.queue[:0]
	for _, it := range s.queue {
		if it.task == claimFire {
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
	var full time.Time // since when items wait for a worker; zero while none does
	last := s.store.Now()
	for first := true; ctx.Err() == nil; {
		if now := s.store.Now(); now.Before(last.Add(-missedAfter)) {
			s.startAgain()
			last, full = now, time.Time{}
		} else {
			last = later(last, now)
		}
		var wait time.Duration
		err := s.meet(ctx)
		switch {
		case errors.Is(err, store.ErrForeign) && first:
			return err
		case err != nil:
			s.logger.Warn("schedule: cannot look up the jobs", "error", err)
			wait = pause.Next()
		default:
			first = false
			pause.Reset()
			if wait = s.untilDue(); wait > 0 {
				full = time.Time{}
				break
			}
			if s.enter(ctx, workers, &full) {
				s.begin(ctx, runs, work, workers, full)
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

// enter waits for a free worker, and records since when. It reports false if the loop has to
// check the queue first.
func (s *Scheduler) enter(ctx context.Context, workers chan<- struct{}, full *time.Time) bool {
	select {
	case workers <- struct{}{}:
		return true
	default:
	}
	if full.IsZero() {
		*full = s.store.Now()
	}
	select {
	case workers <- struct{}{}:
		return true
	case <-s.wake: // a job may be new
	case <-ctx.Done():
	}
	return false
}

// begin has a worker serve the first item that is due. The time for which the item waited for a
// worker, since full, does not make it late.
func (s *Scheduler) begin(ctx, runs context.Context, work *sync.WaitGroup, workers <-chan struct{}, full time.Time) {
	it, due := s.pop()
	if !due { // its job was removed
		<-workers
		return
	}
	it.ready = s.store.Now()
	if !full.IsZero() {
		it.ready = earlier(it.ready, later(it.at, full))
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
		time.AfterFunc(s.grace, func() { cancel(context.Cause(ctx)) })
	})
	return runs, func() { unhook(); cancel(nil) }
}

// meet looks up jobs that are new in this process, to find out which fire to claim first.
func (s *Scheduler) meet(ctx context.Context) error {
	for {
		s.mu.Lock()
		fresh := s.fresh[:min(len(s.fresh), chunkSize)]
		s.fresh = s.fresh[len(fresh):]
		s.mu.Unlock()
		if len(fresh) == 0 {
			return nil
		}
		states, err := s.store.Look(ctx, names(fresh), WithoutPast)
		if err != nil && !errors.Is(err, store.ErrForeign) || len(states) != len(fresh) {
			s.mu.Lock()
			s.fresh = append(s.fresh, fresh...)
			s.mu.Unlock()
			return wrap("look up", "", err)
		}
		now := s.store.Now()
		for i, j := range fresh {
			s.aimFirst(ctx, j, states[i], now)
			s.await(j)
			if j.death == AtOnce && len(states[i].Runs) > 0 {
				s.lookAt(j, now)
			}
		}
		if err != nil {
			return wrap("look up", "", err)
		}
	}
}

func names(jobs []*job) []string {
	all := make([]string, len(jobs))
	for i, j := range jobs {
		all[i] = j.name
	}
	return all
}

// jittered returns when to claim a fire: a random part of the jitter after it, but before
// the next one.
func (s *Scheduler) jittered(j *job, fire time.Time) time.Time {
	if s.jitter <= 0 {
		return fire
	}
	most := min(s.jitter, j.after(fire).Sub(fire)/10*9)
	return fire.Add(rand.N(max(1, most)))
}

// newBackoff makes the pauses after a failed claim or look.
func newBackoff() *backoff.Backoff { return backoff.New(100*time.Millisecond, 10*time.Second) }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
