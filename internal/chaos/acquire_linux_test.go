package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/internal/history"
)

// What the workers are after: two keys that are only ever held alone, one of readers
// and writers, one of permits, and a document that is locked itself.
var everything = []string{"alpha", "beta", readers, permits, document}

const (
	readers  = "gamma"
	permits  = "delta"
	permit   = 2 // of them
	document = "paper"
)

// A paper is the document: it says who wrote to it last.
type paper struct {
	ID    string `bson:"_id"`
	Token int64  `bson:"_fence"`
}

// A stay is a lease in a worker's hand, and what the worker writes down of it.
type stay struct {
	lease *mongolock.Lease
	event history.Event
	write func(context.Context) error // to what the lease guards; nil for who shares it
}

// visit is one acquisition of one key or of two, held for a while.
func (w *worker) visit() {
	if rand.N(8) == 0 {
		w.visitTwo()
		return
	}
	switch key := w.Keys[rand.N(len(w.Keys))]; {
	case key == document:
		w.visitPaper()
	case key == readers && rand.N(10) < 7:
		w.share(key, history.Event{Shared: true}, mongolock.Shared())
	case key == permits && rand.N(10) < 8:
		w.share(key, history.Event{Shared: true, Limit: permit}, mongolock.OneOf(permit))
	default:
		w.visitAlone(key)
	}
}

// call notes that a key is asked for.
func (w *worker) call(e history.Event) (history.Event, context.Context, context.CancelFunc) {
	e.Kind, e.Op = history.Called, int(w.ops.Add(1))
	w.note(e)
	ctx, cancel := context.WithTimeout(context.Background(), 2*w.TTL)
	return e, ctx, cancel
}

// answer holds what a call came to, or notes that it failed.
func (w *worker) answer(e history.Event, l *mongolock.Lease, err error) *stay {
	if err != nil {
		e.Kind, e.Note = history.Failed, kindOf(err)
		w.note(e)
		return nil
	}
	e.Kind, e.ID, e.Token, e.At = history.Granted, l.ID(), l.Token(), uptime()
	if l.Err() != nil {
		return nil // over before anybody could believe in it
	}
	w.note(e)
	e.Note, e.At = "", 0
	return &stay{lease: l, event: e}
}

func (w *worker) visitAlone(key string) {
	e, how, ticket := history.Event{Key: key}, rand.N(10), ""
	if how == 0 {
		select {
		case ticket = <-w.stash:
			e.Key, e.Note = keyOf(ticket), history.Resumed
		default:
		}
	}
	e, ctx, cancel := w.call(e)
	defer cancel()
	var l *mongolock.Lease
	var err error
	if ticket != "" {
		l, err = w.client.Resume(ctx, ticket)
	} else {
		l, err = w.acquire(ctx, key, how)
	}
	if s := w.answer(e, l, err); s != nil {
		s.write = w.register(s)
		w.hold(*s)
		w.end(s)
	}
}

// acquire is Acquire or TryAcquire, under one option or another.
func (w *worker) acquire(ctx context.Context, key string, how int, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	switch {
	case how < 3:
		return w.client.TryAcquire(ctx, key, opts...)
	case how == 3:
		opts = append(opts, mongolock.MaxHold(w.TTL/4+rand.N(w.TTL)))
	case how == 4:
		opts = append(opts, mongolock.NoRenewal())
	case how == 5:
		opts = append(opts, mongolock.MinHold(rand.N(w.TTL/4)))
	}
	return w.client.Acquire(ctx, key, opts...)
}

func (w *worker) share(key string, e history.Event, as mongolock.AcquireOption) {
	e.Key = key
	e, ctx, cancel := w.call(e)
	defer cancel()
	l, err := w.acquire(ctx, key, rand.N(10), as)
	if s := w.answer(e, l, err); s != nil {
		w.hold(*s)
		w.release(s.lease.Release, *s)
	}
}

// visitPaper locks the document itself, and saves it.
func (w *worker) visitPaper() {
	e, ctx, cancel := w.call(history.Event{Key: document})
	defer cancel()
	doc, err := w.papers.AcquireOrCreate(ctx, doclock.ID(document), paper{ID: document})
	if err != nil {
		w.answer(e, nil, err)
		return
	}
	s := w.answer(e, doc.Lease(), nil)
	if s == nil {
		return
	}
	doc.Value.Token = s.lease.Token()
	s.write = doc.Save
	end := doc.Release
	if rand.N(2) == 0 {
		s.write = nil
		end = func() error { return doc.SaveAndRelease(context.Background()) }
	}
	w.hold(*s)
	w.release(end, *s)
}

// visitTwo takes two keys alone, and holds them together.
func (w *worker) visitTwo() {
	keys := slices.DeleteFunc(slices.Clone(w.Keys), func(key string) bool { return key == document })
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	ctx, cancel := context.WithTimeout(context.Background(), 2*w.TTL)
	defer cancel()
	steps := &stepwise{w: w}
	all, err := mongolock.AcquireAll(ctx, steps, keys[:min(2, len(keys))])
	var stays []stay
	for i, e := range steps.granted {
		if err != nil { // given back at some time
			e.Kind, e.Note, e.At = history.Failed, history.Unknown, 0
		}
		w.note(e)
		if err == nil {
			e.At = 0
			s := stay{lease: all[i], event: e}
			s.write = w.register(&s)
			stays = append(stays, s)
		}
	}
	if err == nil {
		w.hold(stays...)
		w.release(all.Release, stays...)
	}
}

// stepwise is a worker's client in AcquireAll. Grants are noted when it has both:
// nobody believes in one before.
type stepwise struct {
	w       *worker
	granted []history.Event
}

// Acquire is the client's.
func (s *stepwise) Acquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	e, _, cancel := s.w.call(history.Event{Key: key, Note: together})
	defer cancel()
	l, err := s.w.client.Acquire(ctx, key, opts...)
	if err != nil {
		s.w.answer(e, nil, err)
		return nil, err
	}
	e.Kind, e.ID, e.Token, e.At = history.Granted, l.ID(), l.Token(), uptime()
	s.granted = append(s.granted, e)
	return l, nil
}

// TryAcquire is not what AcquireAll calls.
func (s *stepwise) TryAcquire(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return nil, errors.ErrUnsupported
}

const together = "together" // the note of a grant by AcquireAll

// hold looks at the leases again and again, and writes down each look that said that
// one is held.
func (w *worker) hold(stays ...stay) {
	until := time.Now().Add(rand.N(50 * time.Millisecond))
	switch {
	case w.Long:
		until = time.Now().Add(2 * w.TTL)
	case rand.N(4) == 0 && !w.Reply:
		until = time.Now().Add(rand.N(2 * w.TTL))
	}
	for first := true; time.Now().Before(until); first = false {
		for _, s := range stays {
			e := s.event
			e.Kind, e.At, e.Note = history.Looked, uptime(), ""
			if s.lease.Err() != nil {
				time.Sleep(rand.N(w.TTL / 5)) // it takes a while to stop
				return
			}
			w.note(e)
			if first && s.write != nil {
				w.write(s)
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// register writes to the key's register under the lease's token.
func (w *worker) register(s *stay) func(context.Context) error {
	l, op := s.lease, s.event.Op
	return func(ctx context.Context) error {
		_, err := fence.UpdateByID(ctx, w.coll, l.Token(), l.Key(), bson.D{{Key: "$set", Value: bson.D{{Key: "op", Value: op}}}})
		return err
	}
}

func (w *worker) write(s stay) {
	ctx, cancel := context.WithTimeout(s.lease.Context(context.Background()), w.TTL)
	defer cancel()
	e := s.event
	e.Kind, e.Note = history.Writes, ""
	w.note(e)
	switch err := s.write(ctx); {
	case err == nil:
		e.Kind = history.Wrote
		w.note(e)
	case errors.Is(err, fence.ErrFenced):
		e.Kind, e.At = history.Fenced, uptime()
		e.Live = s.lease.Err() == nil
		w.note(e)
	}
}

// end gives a key back that was held alone, or leaves it in a ticket.
func (w *worker) end(s *stay) {
	if rand.N(10) > 0 {
		w.release(s.lease.Release, *s)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.TTL)
	defer cancel()
	e := s.event
	e.Kind, e.At, e.Note = history.LetGo, uptime(), history.Detached
	ticket, err := s.lease.Detach(ctx)
	if err != nil {
		w.release(s.lease.Release, *s)
		return
	}
	w.note(e)
	select {
	case w.stash <- ticket:
	default:
	}
}

func (w *worker) release(free func() error, stays ...stay) {
	for _, s := range stays {
		e := s.event
		e.Kind, e.Note = history.LetGo, history.Released
		w.note(e)
	}
	err := free()
	for _, s := range stays {
		e := s.event
		e.Kind, e.Note = history.Freed, ""
		if err != nil {
			e.Note = kindOf(err)
		}
		w.note(e)
	}
}
