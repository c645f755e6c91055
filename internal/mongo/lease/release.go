package lease

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// lossBorne is how much time the loss of a release may cost. A release that one node
// acknowledges is rolled back if that node does not stay primary: the key then stays taken
// until its expiry.
const lossBorne = time.Minute

// ReleaseConcern returns the collection for a release under a MinHold of keep: with w: 1, or with
// majority if losing the release would cost too much. If it is rolled back, a holder that MinHold keeps
// beyond its TTL is gone too soon. What a lease that is not remembered would cost is unknown.
func (s *Steps) ReleaseConcern(id string, keep time.Duration) *mongo.Collection {
	l, ok := s.Memory.Of(id)
	now := s.Coll.Clock.Now()
	left := l.Until.Sub(now)
	if !ok || left > lossBorne || keep > 0 && l.From.Add(keep).Sub(now) > left {
		return s.Coll.Voted
	}
	return s.Coll.Soft
}

// Stays returns what is written for a holder that is released under MinHold and stays in its
// document, which names finds. stays is false if that time is over, or if there is no such holder. For a
// lease that is remembered this process's own clock tells what is left of MinHold. The date of another
// one may be by another clock than the present time: then all of MinHold may be left.
func (s *Steps) Stays(ctx context.Context, names bson.D, id string, keep time.Duration) (t Tenure, stays bool, err error) {
	if keep <= 0 {
		return t, false, nil
	}
	var rest time.Duration
	if l, remembered := s.Memory.Of(id); remembered {
		rest = keep - s.Coll.Clock.Now().Sub(l.From)
	} else {
		image, err := s.Find(ctx, names)
		if err != nil {
			return t, false, server.NotApplied(err)
		}
		h, holds := image.Has(id)
		if !holds {
			return t, false, nil
		}
		rest = min(keep, h.Since.Add(keep).Sub(s.Coll.Present()))
	}
	if rest <= 0 {
		return t, false, nil
	}
	return s.Coll.Tenure(rest), true, nil
}

// Released answers a release by the document that it left.
func (s *Steps) Released(r store.Ref, left Image) store.ReleaseResult {
	s.Memory.Forget(r.ID)
	if s.Coll.ManyClocks() { // under MinHold the holder stays: its silence counts from here for this process, too
		s.Coll.Saw(r.Key, left.States(), left.Seen())
	}
	return ReleaseResult(left.Document)
}

// ReleaseResult answers a release by the document that it left.
func ReleaseResult(left Document) store.ReleaseResult {
	r := store.ReleaseResult{Line: left.Status("", left.At).Waiting("")}
	for _, h := range left.Holders {
		if h.ExpireAt.After(left.At) {
			r.HoldersLeft += max(1, h.Weight)
		}
	}
	return r
}

// NotReleased answers a release that found no such holder, by what a look showed then.
func (s *Steps) NotReleased(id string, seen Image, err error) error {
	s.Memory.Forget(id)
	if err != nil {
		return server.NotApplied(err)
	}
	return GoneIfBroken(seen.Why(id))
}

// Explain tells why a command that names a holder of the document which names finds found none: the
// document is a stranger's, the holder was broken, or it is not there. The command itself certainly
// changed nothing.
func (s *Steps) Explain(ctx context.Context, names bson.D, id string) error {
	image, err := s.Find(ctx, names)
	if err != nil {
		return server.NotApplied(err)
	}
	return image.Why(id)
}

// Why is Explain for an image that was read already.
func (i Image) Why(id string) error {
	if !i.Found() {
		return store.ErrGone
	}
	if i.Foreign != nil {
		return i.Foreign
	}
	if h, ok := i.Has(id); ok && h.IsBroken && !h.Released {
		return &store.BrokenError{Reason: h.Broken}
	}
	return store.ErrGone
}

// GoneIfBroken returns what a release, or a break, answers for err: for these calls a broken
// holder counts as gone.
func GoneIfBroken(err error) error {
	if errors.As(err, new(*store.BrokenError)) {
		return store.ErrGone
	}
	return err
}
