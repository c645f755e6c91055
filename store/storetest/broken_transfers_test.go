package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

type transferUnchecked struct{ sound }

func (s transferUnchecked) Transfer(_ context.Context, _ store.Ref, to store.Claim) (store.Grant, error) {
	return s.replace(to)
}

type transferInTwoSteps struct{ sound }

func (s transferInTwoSteps) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if _, err := s.Store.Transfer(ctx, from, to); err != nil {
		return store.Grant{}, err
	}
	s.remove(to.Key)
	time.Sleep(time.Millisecond)
	return s.Store.Acquire(ctx, to)
}

type transferCheckedBefore struct{ sound }

func (s transferCheckedBefore) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if h, _ := s.holder(from.Key); h.ID != from.ID {
		return store.Grant{}, store.ErrGone
	}
	time.Sleep(time.Millisecond)
	return s.replace(to)
}

type transferKeepsTheOldTime struct{ sound }

func (s transferKeepsTheOldTime) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	_, status := s.holder(from.Key)
	ttl := to.TTL
	to.TTL = max(to.TTL, status.Left())
	g, err := s.Store.Transfer(ctx, from, to)
	if err == nil {
		g.Left = ttl
	}
	return g, err
}

type undoByKey struct{ sound }

func (s undoByKey) Undo(_ context.Context, claim store.Ref, _ *store.Ref) (bool, error) {
	s.remove(claim.Key)
	return true, nil
}

type undoForgetsFrom struct{ sound }

func (s undoForgetsFrom) Undo(ctx context.Context, claim store.Ref, _ *store.Ref) (bool, error) {
	return s.Store.Undo(ctx, claim, nil)
}

type undoForgetsTheClaim struct{ sound }

func (s undoForgetsTheClaim) Undo(ctx context.Context, _ store.Ref, from *store.Ref) (bool, error) {
	if from == nil {
		return true, nil
	}
	return s.Store.Undo(ctx, *from, nil)
}

// undoReserves prevents the late claim by taking the key in its place.
type undoReserves struct{ sound }

func (s undoReserves) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	settled, err := s.Store.Undo(ctx, claim, from)
	_, _ = s.Store.Acquire(ctx, store.Claim{Ref: exclusive(claim.Key, "tombstone"), Limit: 1, TTL: time.Second})
	return settled, err
}

type breakByKey struct{ sound }

func (s breakByKey) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if h, _ := s.holder(r.Key); h.ID != "" {
		r.ID = h.ID
	}
	return s.Store.Break(ctx, r, reason, now)
}

type breakFrees struct{ sound }

func (s breakFrees) Break(ctx context.Context, r store.Ref, reason string, _ bool) error {
	return s.Store.Break(ctx, r, reason, true)
}

type breakLeavesNoMark struct{ sound }

func (s breakLeavesNoMark) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if h, _ := s.holder(r.Key); now || h.ID != r.ID {
		return s.Store.Break(ctx, r, reason, now)
	}
	return nil
}

type breakOnlyMarks struct{ sound }

func (s breakOnlyMarks) Break(ctx context.Context, r store.Ref, reason string, _ bool) error {
	return s.Store.Break(ctx, r, reason, false)
}

type wordIgnored struct{ sound }

func (s wordIgnored) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	c.Want = 0
	return s.Store.Acquire(ctx, c)
}

type wordForever struct{ sound }

func (s wordForever) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.Want > 0 {
		c.Want = time.Hour
	}
	return s.Store.Acquire(ctx, c)
}

// hintBelieved refuses a claim because of the hint that the key is held.
type hintBelieved struct{ sound }

func (s hintBelieved) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.Held {
		return store.Grant{}, &store.HeldError{Status: store.Status{Key: c.Key}}
	}
	return s.Store.Acquire(ctx, c)
}

// wordByKey keeps words outside of the records: it keeps only the last word, or, with
// outlives, keeps words beyond the record's end.
type wordByKey struct {
	sound
	outlives bool
	mu       *sync.Mutex // protects until
	until    map[string]time.Time
}

func newWordByKey(outlives bool) wordByKey {
	return wordByKey{newSound(), outlives, new(sync.Mutex), make(map[string]time.Time)}
}

func (s wordByKey) wanted(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until[key].After(time.Now())
}

func (s wordByKey) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	word := c.Want
	c.Want = 0
	g, err := s.Store.Acquire(ctx, c)
	if word > 0 && (err != nil || s.outlives) {
		s.mu.Lock()
		s.until[c.Key] = time.Now().Add(word)
		s.mu.Unlock()
	}
	g.Wanted = s.wanted(c.Key)
	return g, err
}

func (s wordByKey) Release(ctx context.Context, r store.Ref, keep time.Duration) (bool, error) {
	_, err := s.Store.Release(ctx, r, keep)
	wanted := s.wanted(r.Key)
	if !s.outlives {
		s.mu.Lock()
		delete(s.until, r.Key)
		s.mu.Unlock()
	}
	return wanted, err
}

func (s wordByKey) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all, err := s.Store.Look(ctx, keys)
	for i := range all {
		all[i].Wanted = s.wanted(all[i].Key)
	}
	return all, err
}

type contextIgnored struct{ sound }

func (s contextIgnored) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	time.Sleep(2 * time.Second)
	return s.Store.Break(context.WithoutCancel(ctx), r, reason, now)
}

// appliedButDenied claims that nothing was applied because the context has ended.
type appliedButDenied struct{ sound }

func (s appliedButDenied) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(context.WithoutCancel(ctx), c)
	if ctx.Err() != nil {
		return store.Grant{}, errors.Join(ctx.Err(), store.ErrNotApplied)
	}
	return g, err
}

// grantBoundToItsContext undoes a grant when its context ends.
type grantBoundToItsContext struct{ sound }

func (s grantBoundToItsContext) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		context.AfterFunc(ctx, func() { s.Store.Release(context.Background(), c.Ref, 0) })
	}
	return g, err
}
