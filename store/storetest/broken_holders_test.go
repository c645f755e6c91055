package storetest

import (
	"context"
	"slices"
	"sync"

	"github.com/mongolock/mongolock/store"
)

type releaseByKey struct{ sound }

func (s releaseByKey) Release(_ context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	if h, _ := s.holder(e.Key); h.ID != "" {
		e.ID = h.ID
	}
	return s.end(e)
}

type releaseWithoutEffect struct{ sound }

func (releaseWithoutEffect) Release(context.Context, store.ReleaseRequest) (store.ReleaseResult, error) {
	return store.ReleaseResult{}, nil
}

type keepIgnored struct{ sound }

func (s keepIgnored) Release(_ context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	e.Keep = 0
	return s.end(e)
}

// keepThatOnlyRenews sets another expiry, but does not mark the holder as released.
type keepThatOnlyRenews struct{ sound }

func (s keepThatOnlyRenews) Release(ctx context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	if e.Keep == 0 {
		return s.end(e)
	}
	return store.ReleaseResult{}, s.Renew(ctx, []store.Renewal{{Ref: e.Ref, TTL: e.Keep}})[0].Err
}

// keptThenBroken tells a holder of a break that came after its release.
type keptThenBroken struct {
	sound
	kept, told *sync.Map // by ID
}

func newKeptThenBroken() store.Store { return keptThenBroken{newSound(), new(sync.Map), new(sync.Map)} }

func (s keptThenBroken) Release(_ context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	if e.Keep > 0 {
		s.kept.Store(e.ID, true)
	}
	return s.end(e)
}

func (s keptThenBroken) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	if _, kept := s.kept.Load(r.ID); kept {
		s.told.Store(r.ID, reason)
	}
	return s.Store.Break(ctx, r, reason, now)
}

func (s keptThenBroken) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	return eachRenewal(batch, func(r store.Renewal) store.Renewed {
		if reason, told := s.told.Load(r.ID); told {
			return store.Renewed{Err: &store.BrokenError{Reason: reason.(string)}}
		}
		return s.Store.Renew(ctx, []store.Renewal{r})[0]
	})
}

// eachRenewal implements Renew by a function for one entry.
func eachRenewal(batch []store.Renewal, renew func(store.Renewal) store.Renewed) []store.Renewed {
	answers := make([]store.Renewed, len(batch))
	for i, r := range batch {
		answers[i] = renew(r)
	}
	return answers
}

// again replaces a holder by itself with a new TTL.
func (s sound) again(h store.Holder, r store.Renewal) store.Renewed {
	g, err := s.replace(store.Claim{Ref: exclusive(r.Key, h.ID), Limit: 1, TTL: r.TTL, Owner: h.Owner, Note: h.Note})
	return store.Renewed{Left: g.Left, Err: err}
}

// renewalRevives checks only that the holder is there, not that it is live.
type renewalRevives struct{ sound }

func (s renewalRevives) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	return eachRenewal(batch, func(r store.Renewal) store.Renewed {
		if h, status := s.holder(r.Key); h.ID == r.ID && status.Free() {
			return s.again(h, r)
		}
		return s.Store.Renew(ctx, []store.Renewal{r})[0]
	})
}

// renewalMoves sets the expiry instead of only extending it, and changes the owner.
type renewalMoves struct{ sound }

func (s renewalMoves) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	return eachRenewal(batch, func(r store.Renewal) store.Renewed {
		answer := s.Store.Renew(ctx, []store.Renewal{r})[0]
		if answer.Err != nil {
			return answer
		}
		h, _ := s.holder(r.Key)
		h.Owner = "renewed"
		return s.again(h, r)
	})
}

// renewalCreates is an upsert.
type renewalCreates struct{ sound }

func (s renewalCreates) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	return eachRenewal(batch, func(r store.Renewal) store.Renewed {
		if h, _ := s.holder(r.Key); h.ID == "" {
			return s.again(store.Holder{ID: r.ID}, r)
		}
		return s.Store.Renew(ctx, []store.Renewal{r})[0]
	})
}

type renewalByKey struct{ sound }

func (s renewalByKey) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	return eachRenewal(batch, func(r store.Renewal) store.Renewed {
		if h, _ := s.holder(r.Key); h.ID != "" {
			r.ID = h.ID
		}
		return s.Store.Renew(ctx, []store.Renewal{r})[0]
	})
}

type renewalWithoutEffect struct{ sound }

func (s renewalWithoutEffect) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	return eachRenewal(batch, func(r store.Renewal) store.Renewed {
		answer := s.Store.Renew(ctx, []store.Renewal{{Ref: r.Ref, TTL: 1}})[0]
		if answer.Err == nil {
			answer.Left = r.TTL
		}
		return answer
	})
}

// batchOutOfOrder sorts the batch that it was given, and answers in its own order.
type batchOutOfOrder struct{ sound }

func (s batchOutOfOrder) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	slices.Reverse(batch)
	return s.Store.Renew(ctx, batch)
}

// batchCutShort takes the first page of a cursor for the whole result.
type batchCutShort struct{ sound }

func (s batchCutShort) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	return s.Store.Renew(ctx, batch[:min(len(batch), 101)])
}
