package lease

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// lossBorne is how much time the loss of a release may cost. A release that one node
// acknowledges is rolled back if that node does not stay primary: the key then stays taken
// until its expiry.
const lossBorne = time.Minute

// Gently returns the collection for a release under a MinHold of keep: with w: 1, or with majority
// if losing the release would cost too much. If it is rolled back, a holder that MinHold keeps beyond
// its TTL is gone too soon. What a lease that is not remembered would cost is unknown.
func (s *Steps[R, X]) Gently(id string, keep time.Duration) *mongo.Collection {
	l, ok := s.Memory.Of(id)
	now := s.Base.Clock.Now()
	left := l.Until.Sub(now)
	if !ok || left > lossBorne || keep > 0 && l.From.Add(keep).Sub(now) > left {
		return s.Base.Voted
	}
	return s.Base.Soft
}

// Explain tells why a command that names a holder found none: the document is a stranger's, the
// holder was broken, or it is not there. The command itself certainly changed nothing.
func (s *Steps[R, X]) Explain(ctx context.Context, r store.Ref) error {
	image, err := s.Find(ctx, r)
	if err != nil {
		return server.NotApplied(err)
	}
	return Why(image, r.ID)
}

// Why is Explain for an image that was read already.
func Why[R Record](image Image[R], id string) error {
	if !image.Found() {
		return store.ErrGone
	}
	if foreign := image.Record.Foreign(); foreign != nil {
		return foreign
	}
	if h, ok := image.Record.Holder(id); ok && h.IsBroken && !h.Released {
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
