package schedule

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

// Run does the jobs of this process until ctx ends, and returns nil once its runs
// have returned, whose contexts end too (see WithGrace). A database that cannot be
// reached it waits for. It fails at once if it is running already (ErrRunning), or
// if the collection has something else in a job's place (store.ErrForeign). It may
// be called again.
func (s *Scheduler) Run(ctx context.Context) error {
	client, err := mongolock.NewWithStore(s.engine.forLeases(),
		mongolock.WithOwner(s.owner), mongolock.WithLogger(s.logger))
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
	return errors.Join(err, client.Close())
}

// start puts every job into the queue anew: what was known of it may be old.
func (s *Scheduler) start(client *mongolock.Client) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		return ErrRunning
	}
	s.running, s.client = true, client
	s.queue, s.fresh = nil, nil
	for _, j := range s.jobs {
		j.doubts, j.queued, j.watching = nil, false, false
		s.fresh = append(s.fresh, j)
	}
	return nil
}

func (s *Scheduler) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.client = false, nil
}

// loop is one goroutine and one timer for all jobs; each thing due gets a
// goroutine, of which there are at most as many as workers.
func (s *Scheduler) loop(ctx, runs context.Context, work *sync.WaitGroup) error {
	workers := make(chan struct{}, s.workers)
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := backoff()
	for first := true; ctx.Err() == nil; {
		var wait time.Duration
		err := s.meet(ctx)
		switch {
		case errors.Is(err, store.ErrForeign) && first:
			return err
		case err != nil:
			s.logger.Warn("schedule: cannot look up the jobs", "error", err)
			wait = pause()
		default:
			first, pause = false, backoff()
			var it item
			var is bool
			if it, is, wait = s.pop(); is {
				select {
				case workers <- struct{}{}:
					work.Go(func() {
						defer func() { <-workers }()
						s.serve(ctx, runs, it)
					})
				case <-ctx.Done():
				}
				continue
			}
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

// outliving is the context of runs: that of Run, and then for the grace.
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

// meet looks up jobs that are new here, to learn which fire is theirs.
func (s *Scheduler) meet(ctx context.Context) error {
	for {
		s.mu.Lock()
		fresh := s.fresh[:min(len(s.fresh), chunkSize)]
		s.fresh = s.fresh[len(fresh):]
		s.mu.Unlock()
		if len(fresh) == 0 {
			return nil
		}
		names := make([]string, len(fresh))
		for i, j := range fresh {
			names[i] = j.name
		}
		states, err := s.store.Look(ctx, names)
		if err != nil && !errors.Is(err, store.ErrForeign) || len(states) != len(fresh) {
			s.mu.Lock()
			s.fresh = append(s.fresh, fresh...)
			s.mu.Unlock()
			return wrap("look up", "", err)
		}
		now := s.store.Now()
		for i, j := range fresh {
			j.begin(states[i], now)
			s.put(item{at: s.later(j.fire), job: j})
			if j.death == AtOnce && len(states[i].Runs) > 0 {
				s.watchAt(j, now)
			}
		}
		if err != nil {
			return wrap("look up", "", err)
		}
	}
}

// later is a fire's time with this process's jitter.
func (s *Scheduler) later(fire time.Time) time.Time {
	if s.jitter <= 0 {
		return fire
	}
	return fire.Add(rand.N(s.jitter))
}

// backoff yields pauses that double from 100 ms to 10 s, jittered by a fifth.
func backoff() func() time.Duration {
	next := 100 * time.Millisecond
	return func() time.Duration {
		d := next
		next = min(2*next, 10*time.Second)
		return d*9/10 + rand.N(d/5)
	}
}
