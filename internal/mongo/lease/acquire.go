package lease

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

func (s *Steps[R, X]) Answer(ctx context.Context, c *Claim, image Image[R], t Tenure, err error) (store.Grant, error) {
	if err != nil {
		return store.Grant{}, command.RefusedOrUnknown(image.Reply, err)
	}
	return s.grant(ctx, c, image, t)
}

// Contest judges the document that is in the way of a claim. If no holder is live any more, and
// it is the claim's turn, it returns what the claim has to compare and to change in the line when
// it takes the key over. Otherwise it returns the refusal.
func (s *Steps[R, X]) Contest(ctx context.Context, c *Claim, image Image[R]) (still []bson.E, out command.Change, err error) {
	if _, landed := image.Record.Holder(c.ID); landed || image.Record.Foreign() != nil {
		return nil, nil, s.Refuse(ctx, c, image.Record)
	}
	over, err := s.Judge(ctx, c, image)
	if err != nil {
		return nil, nil, c.Attempt.NotApplied(err)
	}
	seen := s.Remaining(c.Key, image.Record, over)
	if len(seen.Holders) > 0 || !seen.Turn(&c.Claim) {
		return nil, nil, s.Refuse(ctx, c, image.Record)
	}
	still, out = s.Pass(c, seen)
	return still, out, nil
}

func (s *Steps[R, X]) Judge(ctx context.Context, c *Claim, image Image[R]) (map[string]bool, error) {
	return s.Base.Judge(ctx, c.Key, image.Record.Marks(), image.Sent, image.Seen())
}

// Remaining is Status without the holders that are over: they have left.
func (s *Steps[R, X]) Remaining(key string, seen R, over map[string]bool) store.Status {
	status := s.Status(key, seen)
	if len(over) > 0 {
		status.Freed = status.OfferedSince()
	}
	status.Holders = slices.DeleteFunc(status.Holders, func(h store.Holder) bool { return over[h.ID] })
	if len(status.Holders) == 0 {
		status.Mode = ""
	}
	return status
}

// Status returns what people are shown of a record, including when it will be known which of
// its holders are over.
func (s *Steps[R, X]) Status(key string, seen R) store.Status {
	status := seen.Status(key, s.Base.Present())
	marks := make(map[string]server.HolderState, len(status.Holders))
	for _, m := range seen.Marks() {
		marks[m.ID] = m
	}
	for i, h := range status.Holders {
		status.Holders[i].KnownBy = s.Base.KnownBy(key, marks[h.ID], status.Now)
	}
	return status
}

// Refuse answers that the key is held, or that others come before the claim, with what is there
// now. A document of a stranger is no such answer.
//
// In two cases the claimant is told that the key was free for a moment, which is true, and asks
// again: the claim's own twin landed after the refusal, which is removed because its reply, and so
// its token, is lost; or the claim is not in the line, though that has room: nobody would tell it
// when the key is free.
func (s *Steps[R, X]) Refuse(ctx context.Context, c *Claim, seen R) error {
	if foreign := seen.Foreign(); foreign != nil {
		return s.Settle(ctx, c, foreign)
	}
	_, landed := seen.Holder(c.ID)
	c.Attempt.Twin = c.Attempt.Twin || landed
	line := seen.Waiters()
	stands := indexOf(line, c.Place) >= 0
	if landed || c.Place != "" && !stands && len(line) < store.LineMost {
		var nothing R
		seen = nothing
	}
	refusal := &store.HeldError{Status: s.Status(c.Key, seen)}
	if stands && !landed {
		refusal.Place = c.Place
	}
	return s.Settle(ctx, c, refusal)
}

// Settle answers a refusal once it is certain. If the refused command may have a twin on its
// way, the twin is cleaned up first, in its own session, within this call. If that fails the
// outcome is unknown, and the engine's Undo goes on with it.
func (s *Steps[R, X]) Settle(ctx context.Context, c *Claim, refusal error) error {
	if !c.Attempt.Twin {
		return refusal
	}
	freed, err := c.CleanUp(ctx)
	if err != nil {
		return err
	}
	c.Attempt.Twin = false
	s.tell(ctx, freed)
	return refusal
}
