package specpath

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/mongolock/mongolock/store"
)

// A faulty is a store with one fault, for the controls: a walk must find it.
type faulty struct {
	store.Store
	acquire  func(context.Context, store.Store, store.Claim) (store.Grant, error)
	renew    func(context.Context, store.Store, store.Renewal) store.Renewed
	release  func(context.Context, store.Store, store.Ending) store.Ended
	leave    func(context.Context, store.Store, string, store.Place, bool) (store.Status, error)
	transfer func(context.Context, store.Store, store.Ref, store.Claim) (store.Grant, error)
	undo     func(context.Context, store.Store, store.Ref, *store.Ref) (bool, error)
	broken   func(context.Context, store.Store, store.Ref, bool) error
}

func (f faulty) Unwrap() store.Store { return f.Store }

func (f faulty) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if f.acquire != nil {
		return f.acquire(ctx, f.Store, c)
	}
	return f.Store.Acquire(ctx, c)
}

func (f faulty) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	if f.renew != nil {
		return []store.Renewed{f.renew(ctx, f.Store, batch[0])}
	}
	return f.Store.Renew(ctx, batch)
}

func (f faulty) Release(ctx context.Context, batch []store.Ending) []store.Ended {
	if f.release != nil {
		return []store.Ended{f.release(ctx, f.Store, batch[0])}
	}
	return f.Store.Release(ctx, batch)
}

func (f faulty) Leave(ctx context.Context, key string, p store.Place, silent bool) (store.Status, error) {
	if f.leave != nil {
		return f.leave(ctx, f.Store, key, p, silent)
	}
	return f.Store.Leave(ctx, key, p, silent)
}

func (f faulty) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if f.transfer != nil {
		return f.transfer(ctx, f.Store, from, to)
	}
	return f.Store.Transfer(ctx, from, to)
}

func (f faulty) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	if f.undo != nil {
		return f.undo(ctx, f.Store, claim, from)
	}
	return f.Store.Undo(ctx, claim, from)
}

func (f faulty) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if f.broken != nil {
		return f.broken(ctx, f.Store, r, now)
	}
	return f.Store.Break(ctx, r, reason, now)
}

// A Faulty is a subject whose store has a fault.
type Faulty struct {
	Subject
	fault faulty
}

// Store returns the store of the subject, with the fault.
func (f Faulty) Store() store.Store {
	with := f.fault
	with.Store = f.Subject.Store()
	return with
}

// WithFaults are subjects with a fault each, by what is wrong with them.
func WithFaults(s Subject) map[string]Subject {
	all := map[string]Subject{}
	for what, f := range faults {
		all[what] = Faulty{s, f}
	}
	return all
}

// holder is who holds a key, live or not.
func holder(ctx context.Context, s store.Store, key string) (store.Ref, bool) {
	all, err := s.Look(ctx, []string{key})
	if err != nil || len(all[0].Holders) == 0 {
		return store.Ref{}, false
	}
	return store.Ref{Key: key, ID: all[0].Holders[0].ID, Mode: all[0].Mode}, true
}

func release(ctx context.Context, s store.Store, e store.Ending) store.Ended {
	return s.Release(ctx, []store.Ending{e})[0]
}

var faults = map[string]faulty{
	"a release by key": {release: func(ctx context.Context, s store.Store, e store.Ending) store.Ended {
		if h, held := holder(ctx, s, e.Key); held {
			e.Ref = h
		}
		return release(ctx, s, e)
	}},
	"a renewal that revives": {renew: func(ctx context.Context, s store.Store, r store.Renewal) store.Renewed {
		answer := s.Renew(ctx, []store.Renewal{r})[0]
		if errors.Is(answer.Err, store.ErrGone) {
			release(ctx, s, store.Ending{Ref: r.Ref})
			g, err := s.Acquire(ctx, store.Claim{Ref: store.Ref{Key: r.Key, ID: r.ID, Mode: store.Exclusive}, Limit: 1, TTL: r.TTL})
			return store.Renewed{Left: g.Left, Err: err}
		}
		return answer
	}},
	"a renewal that is not written": {renew: func(ctx context.Context, s store.Store, r store.Renewal) store.Renewed {
		return store.Renewed{Left: r.TTL}
	}},
	"a renewal that makes little of a break": {renew: func(ctx context.Context, s store.Store, r store.Renewal) store.Renewed {
		answer := s.Renew(ctx, []store.Renewal{r})[0]
		if errors.As(answer.Err, new(*store.BrokenError)) {
			return store.Renewed{Left: r.TTL}
		}
		return answer
	}},
	"a key that is taken from a live holder": {acquire: func(ctx context.Context, s store.Store, c store.Claim) (store.Grant, error) {
		g, err := s.Acquire(ctx, c)
		if h, held := holder(ctx, s, c.Key); held && errors.Is(err, store.ErrHeld) {
			release(ctx, s, store.Ending{Ref: h})
			return s.Acquire(ctx, c)
		}
		return g, err
	}},
	"one token for all": {acquire: func(ctx context.Context, s store.Store, c store.Claim) (store.Grant, error) {
		g, err := s.Acquire(ctx, c)
		g.Token = 1
		return g, err
	}},
	"no line": {acquire: func(ctx context.Context, s store.Store, c store.Claim) (store.Grant, error) {
		c.Place = ""
		return s.Acquire(ctx, c)
	}},
	"a claim that is granted out of its turn": {acquire: func(ctx context.Context, s store.Store, c store.Claim) (store.Grant, error) {
		g, err := s.Acquire(ctx, c)
		var held *store.HeldError
		if errors.As(err, &held) && held.Status.Free() {
			for _, w := range held.Line {
				_, _ = s.Leave(ctx, c.Key, w.Place, false)
			}
			return s.Acquire(ctx, c)
		}
		return g, err
	}},
	"a grant that leaves its place in line": {acquire: func(ctx context.Context, s store.Store, c store.Claim) (store.Grant, error) {
		g, err := s.Acquire(ctx, c)
		if err == nil && c.Place != "" {
			c.ID = rand.Text()
			_, _ = s.Acquire(ctx, c)
		}
		return g, err
	}},
	"a waiter that asks again and stands last": {acquire: func(ctx context.Context, s store.Store, c store.Claim) (store.Grant, error) {
		_, _ = s.Leave(ctx, c.Key, c.Place, false)
		return s.Acquire(ctx, c)
	}},
	"nobody is passed": {acquire: func(ctx context.Context, s store.Store, c store.Claim) (store.Grant, error) {
		c.Pass = ""
		return s.Acquire(ctx, c)
	}},
	"a release that forgets the line": {release: func(ctx context.Context, s store.Store, e store.Ending) store.Ended {
		answer := release(ctx, s, e)
		for _, p := range answer.Line {
			_, _ = s.Leave(ctx, e.Key, p, false)
		}
		return answer
	}},
	"a place that is left whether it is the first or not": {leave: func(ctx context.Context, s store.Store, key string, p store.Place, _ bool) (store.Status, error) {
		return s.Leave(ctx, key, p, false)
	}},
	"no MinHold": {release: func(ctx context.Context, s store.Store, e store.Ending) store.Ended {
		e.Keep = 0
		return release(ctx, s, e)
	}},
	"a hand-over to whoever asks": {transfer: func(ctx context.Context, s store.Store, from store.Ref, to store.Claim) (store.Grant, error) {
		if h, held := holder(ctx, s, from.Key); held {
			from = h
		}
		return s.Transfer(ctx, from, to)
	}},
	"a clean-up that does nothing": {undo: func(context.Context, store.Store, store.Ref, *store.Ref) (bool, error) {
		return true, nil
	}},
	"a clean-up of a hand-over that leaves the old holder": {undo: func(ctx context.Context, s store.Store, r store.Ref, _ *store.Ref) (bool, error) {
		return s.Undo(ctx, r, nil)
	}},
	"a break that always removes": {broken: func(ctx context.Context, s store.Store, r store.Ref, _ bool) error {
		return s.Break(ctx, r, broken, true)
	}},
}
