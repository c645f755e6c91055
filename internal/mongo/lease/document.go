package lease

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// A Record is a document as its store has read it.
type Record interface {
	// Foreign returns why the document is not a lock of this library, as an error that matches
	// store.ErrForeign, or nil.
	Foreign() error
	// Holder returns the acquisition with that ID.
	Holder(id string) (Holder, bool)
	// Marks returns what is needed of each holder to judge whether it is over.
	Marks() []server.HolderState
	// Waiters returns the line.
	Waiters() []store.Waiter
	// Drawn returns the server's time of the last write, and a timestamp of a confirm step.
	Drawn() (at time.Time, stamp bson.Timestamp)
	// Status returns what people are shown of the record.
	Status(key string, now time.Time) store.Status
}

// A Document holds what the documents of all stores have in common, as read. Their records
// embed it: it has most methods of a Record.
type Document struct {
	Stranger string // why it is not a lock of this library; empty if it is
	Holders  []Holder
	Line     []store.Waiter
	At       time.Time      // the server's time at the last write
	Freed    time.Time      // when a holder last left
	Used     time.Duration  // for how long that one had the lock
	Stamp    bson.Timestamp // of a confirm step
}

func (d Document) Holder(id string) (Holder, bool) {
	for _, h := range d.Holders {
		if h.ID == id {
			return h, true
		}
	}
	return Holder{}, false
}

func (d Document) Marks() []server.HolderState {
	marks := make([]server.HolderState, len(d.Holders))
	for i, h := range d.Holders {
		marks[i] = h.Mark()
	}
	return marks
}

func (d Document) Waiters() []store.Waiter { return d.Line }

func (d Document) Drawn() (at time.Time, stamp bson.Timestamp) { return d.At, d.Stamp }

// Seen returns what people are shown of its holders, which are in that mode, and of its line.
func (d Document) Seen(key string, mode store.Mode, now time.Time) store.Status {
	s := store.Status{Key: key, Line: d.Line, Now: now, Freed: d.Freed, Used: d.Used}
	if len(d.Holders) > 0 {
		s.Mode = mode
		s.Holders = make([]store.Holder, len(d.Holders))
		for i, h := range d.Holders {
			s.Holders[i] = h.Holder
		}
	}
	return s
}

// A Holder is one acquisition in a document.
type Holder struct {
	store.Holder
	IsBroken bool

	TTL   time.Duration
	Beat  int64
	Epoch bson.ObjectID
}

func (h Holder) Mark() server.HolderState {
	return server.HolderState{ID: h.ID, Beat: h.Beat, Epoch: h.Epoch, TTL: h.TTL, ExpireAt: h.ExpireAt}
}

// An Image is what one command answered about one document.
type Image[R Record] struct {
	command.Reply
	Record R // the zero value if nothing was found
}
