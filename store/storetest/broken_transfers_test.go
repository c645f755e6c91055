package storetest

import (
	"context"
	"errors"
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
		context.AfterFunc(ctx, func() { s.end(store.ReleaseRequest{Ref: c.Ref}) })
	}
	return g, err
}
