package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/store"
)

// Stores that break one duty each.
type (
	forgetsFires   struct{ schedule.Store } // a lock alone: remembers no fire
	endsAnyRun     struct{ schedule.Store } // ends the run under way, whatever its ID
	resurrects     struct{ schedule.Store } // renews a run that ran out
	undoesNothing  struct{ schedule.Store }
	believesInLife struct{ schedule.Store } // believes every run alive for an hour
	takesBackAny   struct{ schedule.Store } // takes decided back from wherever it is
	neverTakesBack struct{ schedule.Store } // never takes decided back
)

func (s forgetsFires) Claim(ctx context.Context, c schedule.Claim) (schedule.Claimed, error) {
	all, err := s.Look(ctx, []string{c.Job}, schedule.WithoutPast)
	if err == nil && all[0].Busy == "" {
		err = s.Forget(ctx, c.Job)
	}
	if err != nil {
		return schedule.Claimed{}, err
	}
	return s.Store.Claim(ctx, c)
}

func (s endsAnyRun) Finish(ctx context.Context, e schedule.End) error {
	if all, err := s.Look(ctx, []string{e.Job}, schedule.WithoutPast); err == nil && all[0].Busy != "" {
		e.ID = all[0].Busy
	}
	return s.Store.Finish(ctx, e)
}

func (s resurrects) Renew(ctx context.Context, r schedule.Ref, ttl time.Duration) (time.Duration, error) {
	left, err := s.Store.Renew(ctx, r, ttl)
	if errors.Is(err, store.ErrGone) {
		return ttl, nil
	}
	return left, err
}

func (undoesNothing) Undo(context.Context, schedule.Claim) (bool, error) { return true, nil }

func (s believesInLife) Claim(ctx context.Context, c schedule.Claim) (schedule.Claimed, error) {
	c.TTL = time.Hour
	return s.Store.Claim(ctx, c)
}

func (s takesBackAny) Claim(ctx context.Context, c schedule.Claim) (schedule.Claimed, error) {
	if !c.Ahead.IsZero() {
		all, err := s.Look(ctx, []string{c.Job}, schedule.WithoutPast)
		if err != nil {
			return schedule.Claimed{}, err
		}
		c.Ahead = all[0].Decided
	}
	return s.Store.Claim(ctx, c)
}

func (s neverTakesBack) Claim(ctx context.Context, c schedule.Claim) (schedule.Claimed, error) {
	c.Ahead = time.Time{}
	return s.Store.Claim(ctx, c)
}

// A recorder takes notes of failures, and stops the goroutine as a test would.
type recorder struct {
	mu   sync.Mutex
	said []string
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (*recorder) FailNow() { runtime.Goexit() }

func TestControlAStoreThatBreaksADutyIsCaught(t *testing.T) {
	broken := map[string]struct {
		store schedule.Store
		claim string
	}{
		"remembers no fire":        {forgetsFires{schedule.NewMemory()}, "a fire is claimed once"},
		"ends whichever run":       {endsAnyRun{schedule.NewMemory()}, "a run that ran out gives way to the next fire"},
		"renews what ran out":      {resurrects{schedule.NewMemory()}, "a run that ran out is not renewed, and its end is written"},
		"undoes nothing":           {undoesNothing{schedule.NewMemory()}, "a claim undone gives its fire back"},
		"takes back any decision":  {takesBackAny{schedule.NewMemory()}, "decided is taken back from far ahead, and once"},
		"believes every run alive": {believesInLife{schedule.NewMemory()}, "a run that ran out gives way to the next fire"},
	}
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				claim, exists := claims()[b.claim]
				assert.True(t, exists, "no claim is called %q", b.claim)
				r := &recorder{}
				done := make(chan struct{})
				go func() {
					defer close(done)
					claim(newStoreFixture(r, b.store, time.Second))
				}()
				<-done
				assert.NotEmpty(t, r.said, "%q does not notice", b.claim)
			})
		})
	}
}
