package lease

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// Release ends a lease by the command that send sends, and answers by the record that it left. If
// the command found no such holder, the image that look returns tells why.
func (s *Steps[R, X]) Release(ctx context.Context, r store.Ref, send, look func(context.Context) (Image[R], error)) (store.ReleaseResult, error) {
	ctx = command.Bare(ctx)
	image, err := send(ctx)
	if err != nil {
		return store.ReleaseResult{}, server.Classified(err)
	}
	if image.Found() {
		s.Memory.Forget(r.ID)
		if s.Base.ManyClocks() { // under MinHold the holder stays: its silence counts from here for this process, too
			s.Base.Saw(r.Key, image.Record.Marks(), image.Seen())
		}
		return EndedAs(image.Record), nil
	}
	image, err = look(ctx)
	if err != nil {
		err = server.NotApplied(err)
	} else {
		err = GoneIfBroken(Why(image, r.ID))
	}
	s.Memory.Forget(r.ID)
	return store.ReleaseResult{}, err
}

// EndedAs answers a release by the document that it left.
func EndedAs[R Record](left R) store.ReleaseResult {
	at, _ := left.Drawn()
	seen := left.Status("", at)
	e := store.ReleaseResult{Line: seen.Waiting("")}
	for _, m := range left.Marks() {
		if m.ExpireAt.After(at) {
			h, _ := left.Holder(m.ID)
			e.HoldersLeft += max(1, h.Weight)
		}
	}
	return e
}

// Stays returns what is written for a holder that is released under MinHold and stays in its
// document. stays is false if that time is over, or if there is no such holder. For a lease that is
// remembered this process's own clock tells what is left of MinHold. The date of another one may be
// by another clock than the present time: then all of MinHold may be left.
func (s *Steps[R, X]) Stays(ctx context.Context, r store.Ref, keep time.Duration) (t Tenure, stays bool, err error) {
	if keep <= 0 {
		return t, false, nil
	}
	var rest time.Duration
	if l, remembered := s.Memory.Of(r.ID); remembered {
		rest = keep - s.Base.Clock.Now().Sub(l.From)
	} else {
		image, err := s.Find(ctx, r)
		if err != nil {
			return t, false, server.NotApplied(err)
		}
		h, holds := image.Record.Holder(r.ID)
		if !holds {
			return t, false, nil
		}
		rest = min(keep, h.Since.Add(keep).Sub(s.Base.Present()))
	}
	if rest <= 0 {
		return t, false, nil
	}
	return s.Base.Tenure(rest), true, nil
}

// Break marks or removes a holder, by the command that send sends.
func (s *Steps[R, X]) Break(ctx context.Context, r store.Ref, send func(context.Context) (Image[R], error)) error {
	ctx = command.Bare(ctx)
	image, err := send(ctx)
	switch {
	case err != nil:
		return server.Classified(err)
	case !image.Found():
		return GoneIfBroken(s.Explain(ctx, r))
	}
	return nil
}

// Undo removes what a claim of unknown outcome left, by its ID and in its session. The removal
// has a higher transaction number, so the server refuses the claim if it comes later, even if
// the removal found nothing.
func (s *Steps[R, X]) Undo(ctx context.Context, claim store.Ref, from *store.Ref, cleanUp func(context.Context, *command.Attempt) (found bool, err error)) (settled bool, err error) {
	return s.Base.Undo(ctx, claim.ID, func(ctx context.Context, a *command.Attempt) (bool, error) {
		found, err := cleanUp(ctx, a)
		if err != nil {
			return false, err
		}
		s.Memory.Forget(claim.ID)
		if from != nil {
			s.Memory.Forget(from.ID)
		}
		return found, nil
	})
}

// Transfer puts a claim in the place of a live holder, by the one command that send sends: one
// trip for a release and a grant, and no instant at which the key is free. If that finds no such
// holder, the document tells why.
func (s *Steps[R, X]) Transfer(ctx context.Context, from store.Ref, c *Claim, send func(context.Context) (Image[R], Tenure, error)) (store.Grant, error) {
	if !s.trusts(from.ID) { // its end will be judged, by the clock of the present election
		s.Base.Refresh(ctx)
	}
	image, t, err := send(ctx)
	if err != nil || image.Found() {
		g, err := s.Answer(ctx, c, image, t, err)
		if err == nil {
			s.Memory.Forget(from.ID)
		}
		return g, err
	}
	c.Attempt.Answered(image.Reply, true)
	seen, err := s.Find(ctx, c.Ref)
	if err != nil {
		return store.Grant{}, c.Attempt.NotApplied(err)
	}
	_, landed := seen.Record.Holder(c.ID)
	c.Attempt.Twin = c.Attempt.Twin || landed
	return store.Grant{}, s.Settle(ctx, c, Why(seen, from.ID))
}
