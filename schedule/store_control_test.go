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

	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/store"
)

// Stores that break one duty each.
type (
	forgetsFires   struct{ jobs.Store } // a lock alone: remembers no fire
	endsAnyRun     struct{ jobs.Store } // ends the run under way, whatever its ID
	resurrects     struct{ jobs.Store } // renews a run that ran out
	undoesNothing  struct{ jobs.Store }
	believesInLife struct{ jobs.Store } // believes every run alive for an hour
	takesBackAny   struct{ jobs.Store } // takes decided back from wherever it is
	neverTakesBack struct{ jobs.Store } // never takes decided back
)

func (s forgetsFires) Claim(ctx context.Context, c jobs.Claim) (jobs.Claimed, error) {
	all, err := s.Read(ctx, []string{c.Job}, jobs.WithoutPast)
	if err != nil {
		return jobs.Claimed{}, err
	}
	c.Mark, c.First = time.Time{}, all[0].Decided.Add(time.Hour)
	return s.Store.Claim(ctx, c)
}

func (s endsAnyRun) End(ctx context.Context, e jobs.End) error {
	if all, err := s.Read(ctx, []string{e.Job}, jobs.WithoutPast); err == nil && len(all[0].Runs) > 0 {
		e.ID = all[0].Runs[0].ID
	}
	return s.Store.End(ctx, e)
}

func (s resurrects) Renew(ctx context.Context, r jobs.Ref, ttl time.Duration, begun bool) (time.Duration, error) {
	left, err := s.Store.Renew(ctx, r, ttl, begun)
	if errors.Is(err, store.ErrGone) {
		return ttl, nil
	}
	return left, err
}

func (undoesNothing) Undo(context.Context, jobs.Claim) (bool, error) { return true, nil }

func (s believesInLife) Claim(ctx context.Context, c jobs.Claim) (jobs.Claimed, error) {
	c.TTL = time.Hour
	return s.Store.Claim(ctx, c)
}

func (s takesBackAny) Claim(ctx context.Context, c jobs.Claim) (jobs.Claimed, error) {
	if !c.Ahead.IsZero() {
		all, err := s.Read(ctx, []string{c.Job}, jobs.WithoutPast)
		if err != nil {
			return jobs.Claimed{}, err
		}
		c.Ahead = all[0].Decided
	}
	return s.Store.Claim(ctx, c)
}

func (s neverTakesBack) Claim(ctx context.Context, c jobs.Claim) (jobs.Claimed, error) {
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
		store jobs.Store
		claim string
	}{
		"remembers no fire":        {forgetsFires{jobs.NewMemory()}, "a fire is claimed once"},
		"ends whichever run":       {endsAnyRun{jobs.NewMemory()}, "a run that ran out is repeated once, and other fires wait"},
		"renews what ran out":      {resurrects{jobs.NewMemory()}, "a run that ran out is not renewed, and its end is written"},
		"undoes nothing":           {undoesNothing{jobs.NewMemory()}, "a claim undone before its fire gives it back"},
		"takes back any decision":  {takesBackAny{jobs.NewMemory()}, "decided is taken back from far ahead, and once"},
		"believes every run alive": {believesInLife{jobs.NewMemory()}, "a run that ran out is repeated once, and other fires wait"},
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
