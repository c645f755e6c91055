package mongolease

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongoerr"
	"github.com/mongolock/mongolock/store"
)

// lossBorne is how much time a release may lose. One that is acknowledged by one node is
// taken back if that node is not followed: the key then stays taken until its expiry.
const lossBorne = time.Minute

// Gently is the collection for a release: w: 1, or majority if it would hurt to lose it. A
// holder under a session that comes back stays for as long as its process lives. What is not
// remembered may be one.
func (s *Steps[R, X]) Gently(id string) *mongo.Collection {
	l, ok := s.Memory.Of(id)
	hurts := l.Kept || l.Until.Sub(s.Base.Clock.Now()) > lossBorne
	if !ok {
		hurts = s.Sessions != nil
	}
	if hurts && !knob.ReleaseUnvoted {
		return s.Base.Voted
	}
	return s.Base.Soft
}

// Since is when a holder was granted the key: remembered, or read. Zero if there is no
// such holder.
func (s *Steps[R, X]) Since(ctx context.Context, r store.Ref) (time.Time, error) {
	if l, ok := s.Memory.Of(r.ID); ok {
		return l.Since, nil
	}
	image, err := s.Find(ctx, r)
	if err != nil {
		return time.Time{}, mongoerr.NotApplied(err)
	}
	h, _ := image.Record.Holder(r.ID)
	return h.Since, nil
}

// Explain tells why a command that names a holder found none: the document is a
// stranger's, the holder was broken, or there is none. The command itself surely changed
// nothing.
func (s *Steps[R, X]) Explain(ctx context.Context, r store.Ref) error {
	image, err := s.Find(ctx, r)
	if err != nil {
		return mongoerr.NotApplied(err)
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

// GoneIfBroken is what a release, or a break, answers for err: a broken holder is no
// longer there as what was meant.
func GoneIfBroken(err error) error {
	if errors.As(err, new(*store.BrokenError)) {
		return store.ErrGone
	}
	return err
}
