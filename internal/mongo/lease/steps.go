// Package lease has the steps of a lease in a document of MongoDB. It serves store/mongostore, which
// keeps a document for each key, and package doclock, which keeps a lock inside a document of the
// application. The protocol is that of docs/internals/design.md §4.
//
// A store says how its documents look ([Layout]), makes the commands of its own, and says which one
// comes next. This package sends them, says what an answer means, and has the commands that are
// alike in both: those of the line, renewals, and the second look at a grant.
package lease

import (
	"cmp"
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// A Step names the purpose of a command: its row in the table of docs/internals/design.md §4.4.
type Step string

// The steps.
const (
	Acquire  Step = "acquire"
	TakeOver Step = "take over" // compare-and-swap if no holder is live
	Offer    Step = "offer"     // take a key that is offered
	Join     Step = "join"
	Wait     Step = "wait"     // join the line
	Refresh  Step = "refresh"  // say that one still waits
	StepOut  Step = "step out" // leave the line
	Confirm  Step = "confirm"
	Correct  Step = "correct"
	HandOver Step = "hand over"
	Renew    Step = "renew"
	Release  Step = "release"
	Leave    Step = "leave"
	Last     Step = "last" // a document that nobody holds, and nobody waits for, is deleted
	Undo     Step = "undo"
	Break    Step = "break"
)

// A Command is one command about one document, as a value.
type Command struct {
	Step   Step
	To     *mongo.Collection // one of those of the store's command.Collection, with its write concern
	Filter bson.D
	Update bson.D                                  // nil: the document is deleted
	As     *options.FindOneAndUpdateOptionsBuilder // nil: command.After
	Grants string                                  // the ID of the claim that it may make the holder: of the image no more is read than a grant needs
}

// Steps are the steps of the leases in one collection.
type Steps struct {
	Layout
	Coll   *command.Collection
	Only   any // the projection of each reply but that to a claim; nil: all of the document
	Memory Memory
}

// An Image is what one command answered about one document.
type Image struct {
	command.Reply
	Document // the zero value if nothing was found
}

// Send sends a command. If the after-image has the server's time, that counts as a sample. The image of
// what was deleted has no holders, and no line if a lock was deleted as a document: then none was in it.
func (s *Steps) Send(ctx context.Context, c Command) (Image, error) {
	if c.Update == nil {
		r, err := s.Coll.Remove(ctx, c.To, c.Filter, options.FindOneAndDelete().SetProjection(s.Only))
		image := Image{Reply: r}
		if s.Path != "" {
			image.Document = s.Read(r.Image)
			image.Holders = nil
		}
		return image, err
	}
	as := []options.Lister[options.FindOneAndUpdateOptions]{cmp.Or(c.As, command.After)}
	if s.Only != nil && c.Grants == "" {
		as = append(as, options.FindOneAndUpdate().SetProjection(s.Only))
	}
	r, err := s.Coll.Modify(ctx, c.To, c.Filter, c.Update, as...)
	image := Image{Reply: r}
	switch {
	case r.Image == nil:
	case c.Grants != "":
		image.Document = s.readGrant(r.Image, c.Grants)
	default:
		image.Document = s.Read(r.Image)
	}
	if c.As != command.Before {
		s.Coll.Timed(image.At, r.Sent)
	}
	return image, err
}

// Find reads a document that a filter matches.
func (s *Steps) Find(ctx context.Context, filter bson.D) (Image, error) {
	r, err := s.Coll.Find(ctx, filter, options.FindOne().SetProjection(s.Only))
	return Image{r, s.Read(r.Image)}, err
}

// Alive is the condition that the holder is there and can be renewed, handed over and saved under;
// see Fields.Alive.
func (s *Steps) Alive(id string, by server.Bearing) []bson.E {
	return append(s.Named(id), s.Holder(id).Alive(by)...)
}

// Trusts reports whether a lease may still be trusted. Then it has not run out, and a command need
// not ask: SecantusDB answers a filter with an $or by reading the whole collection.
func (s *Steps) Trusts(id string) bool {
	l, ok := s.Memory.Of(id)
	return ok && s.Coll.Clock.Now() < l.Until
}

// Status returns what people are shown of a document, including when it will be known which of
// its holders are over.
func (s *Steps) Status(key string, d Document) store.Status {
	status := d.Status(key, s.Coll.Present())
	for i, h := range d.Holders {
		status.Holders[i].KnownBy = s.Coll.KnownBy(key, h.State(), status.Now)
	}
	return status
}
