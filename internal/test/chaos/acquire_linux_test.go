package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/internal/test/history"
)

// The keys that the workers lock: two that are only ever held exclusively, one of readers and
// writers, one of permits, and a document that is locked itself.
var allKeys = []string{"alpha", "beta", readers, permits, document}

const (
	readers     = "gamma"
	permits     = "delta"
	permitLimit = 2
	document    = "document"
)

// guarded is the document that is locked itself. It names its last writer's token.
type guarded struct {
	ID    string `bson:"_id"`
	Token int64  `bson:"_fence"`
}

// A held lease is one in a worker's hand, with what the worker writes down of it.
type held struct {
	lease *mongolock.Lease
	event history.Event
	write func(context.Context) error // to what the lease guards; nil if the lease is shared
	how   string                      // the write is done
}

// acquireSomething takes one key or two and holds them for a while.
func (w *worker) acquireSomething() {
	switch rand.N(16) {
	case 0, 1:
		w.useTwo()
		return
	case 2, 3, 4:
		w.useAndClose()
		return
	}
	switch key := w.Keys[rand.N(len(w.Keys))]; {
	case key == document:
		w.useDocument()
	case key == readers && rand.N(10) < 7:
		w.useShared(key, history.Mode{Shared: true})
	case key == permits && rand.N(10) < 8:
		m := history.Mode{Shared: true, Limit: permitLimit + rand.N(2)} // as while a deploy rolls
		if rand.N(10) < 3 {
			m.Weight = permitLimit
		}
		w.useShared(key, m)
	default:
		w.useExclusive(key)
	}
}

// call notes that a key is asked for.
func (w *worker) call(e history.Event) (history.Event, context.Context, context.CancelFunc) {
	e.Kind, e.Op = history.Called, int(w.ops.Add(1))
	w.note(e)
	ctx, cancel := context.WithTimeout(context.Background(), 2*w.TTL)
	return e, ctx, cancel
}

// answer notes a call's lease or its error. It returns nil if nothing is held.
func (w *worker) answer(call history.Event, l *mongolock.Lease, err error) *held {
	if err != nil {
		w.note(call.Failure(err))
		return nil
	}
	e := call.Grant(l)
	e.At = uptime()
	if l.Err() != nil {
		return nil // over before a caller could rely on it
	}
	w.note(e)
	e.Note, e.At = "", 0
	return &held{lease: l, event: e}
}

func (w *worker) useExclusive(key string) {
	e, how, resumed := history.Event{Key: key}, rand.N(10), ticket{}
	if how == 0 {
		select {
		case resumed = <-w.detached:
			e.Key, e.Note = resumed.key, history.Resumed
		default:
		}
	}
	e, ctx, cancel := w.call(e)
	defer cancel()
	var l *mongolock.Lease
	var err error
	if resumed.text != "" {
		l, err = w.client.Resume(ctx, resumed.text)
	} else {
		l, err = w.acquire(ctx, key, how)
	}
	if h := w.answer(e, l, err); h != nil {
		h.write = w.writeRegister(h)
		w.hold(*h)
		w.detachOrRelease(h)
	}
}

// useAndClose takes a key exclusively with a client of its own, and closes the client while it
// holds the key. Now and then the client has so many others that it releases them in bulk.
func (w *worker) useAndClose() {
	client, err := mongolock.New(w.locks, w.options...)
	if err != nil {
		panic(err)
	}
	closed := false
	defer func() {
		if !closed {
			_ = client.Close()
		}
	}()
	note := closing
	if w.closed.Add(1)%2 == 0 { // by turns: in a short run chance may leave it out
		note = closingMany
		w.takeMany(client)
	}
	e, ctx, cancel := w.call(history.Event{Key: w.Keys[rand.N(2)], Note: note})
	defer cancel()
	l, err := client.Acquire(ctx, e.Key)
	if h := w.answer(e, l, err); h != nil {
		h.write = w.writeRegister(h)
		w.hold(*h)
		closed = true
		w.letGo(history.Closed, client.Close, *h)
	}
}

// takeMany has a client take keys that no other worker wants; an error does not concern them.
// It asks for all of them at once: one by one they took longer, on a slow link, than the call
// that comes after them may take.
func (w *worker) takeMany(client *mongolock.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), w.TTL)
	defer cancel()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() { _, _ = client.TryAcquire(ctx, fmt.Sprintf("of %d, %d of %d", w.Client, i, w.closed.Load())) })
	}
	all.Wait()
}

// acquire calls Acquire or TryAcquire, with one option or another.
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

func (w *worker) useShared(key string, m history.Mode) {
	e, ctx, cancel := w.call(history.Event{Key: key, Mode: m})
	defer cancel()
	l, err := w.acquire(ctx, key, rand.N(10), m.Options()...)
	if h := w.answer(e, l, err); h != nil {
		w.hold(*h)
		w.release(h.lease.Release, *h)
	}
}

// useDocument locks the document itself and saves it.
func (w *worker) useDocument() {
	e, ctx, cancel := w.call(history.Event{Key: document})
	defer cancel()
	doc, err := w.documents.AcquireOrCreate(ctx, doclock.ID(document), guarded{ID: document})
	if err != nil {
		w.answer(e, nil, err)
		return
	}
	h := w.answer(e, doc.Lease(), nil)
	if h == nil {
		return
	}
	doc.Value.Token = h.lease.Token()
	end := doc.Release
	switch rand.N(4) {
	case 0:
		h.write = doc.Save
	case 1, 2: // many of them fail, with what happens meanwhile
		h.write, h.how = w.saveInTransaction(doc.Save), inTransaction
	default:
		end = func() error { return doc.SaveAndRelease(context.Background()) }
	}
	w.hold(*h)
	w.release(end, *h)
}

// saveInTransaction has save run in a transaction that stays open for a while after it.
func (w *worker) saveInTransaction(save func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		session, err := w.locks.Database().Client().StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(context.WithoutCancel(ctx))
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			err := save(ctx)
			pause(ctx, rand.N(w.TTL/4))
			return nil, err
		})
		return err
	}
}

// useTwo takes two keys exclusively and holds them together.
func (w *worker) useTwo() {
	keys := slices.DeleteFunc(slices.Clone(w.Keys), func(key string) bool { return key == document })
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	ctx, cancel := context.WithTimeout(context.Background(), 2*w.TTL)
	defer cancel()
	locker := &notingLocker{w: w}
	all, err := mongolock.AcquireAll(ctx, locker, keys[:min(2, len(keys))])
	var both []held
	for _, h := range locker.granted {
		if !slices.Contains(all, h.lease) { // AcquireAll gives it back, at some time
			h.event.Kind, h.event.Note, h.event.At = history.Failed, history.Unknown, 0
			w.note(h.event)
			continue
		}
		w.note(h.event)
		h.event.At = 0
		h.write = w.writeRegister(&h)
		both = append(both, h)
	}
	if err == nil {
		w.hold(both...)
		w.release(all.Release, both...)
	}
}

// A notingLocker is a worker's client, as AcquireAll uses it. Its calls and failures are
// noted at once, its grants later: no worker relies on one before AcquireAll returns.
type notingLocker struct {
	w       *worker
	mu      sync.Mutex // AcquireAll tries its keys side by side
	granted []held
}

// Acquire is the client's.
func (n *notingLocker) Acquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return n.noting(ctx, key, n.w.client.Acquire, opts)
}

// TryAcquire is the client's.
func (n *notingLocker) TryAcquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	return n.noting(ctx, key, n.w.client.TryAcquire, opts)
}

func (n *notingLocker) noting(ctx context.Context, key string, take func(context.Context, string, ...mongolock.AcquireOption) (*mongolock.Lease, error), opts []mongolock.AcquireOption) (*mongolock.Lease, error) {
	e, _, cancel := n.w.call(history.Event{Key: key, Note: together})
	defer cancel()
	l, err := take(ctx, key, opts...)
	if err != nil {
		n.w.answer(e, nil, err)
		return nil, err
	}
	e = e.Grant(l)
	e.At = uptime()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.granted = append(n.granted, held{lease: l, event: e})
	return l, nil
}

// The notes of what a run must show.
const (
	together      = "together"       // a grant by AcquireAll
	closing       = "closing"        // a grant to a client that is closed while it holds the key
	closingMany   = "closing many"   // the same, to a client with many leases
	inTransaction = "in transaction" // a write
)

// hold looks at the leases again and again, and notes each look that said that one is held.
func (w *worker) hold(all ...held) {
	until := time.Now().Add(rand.N(50 * time.Millisecond))
	switch {
	case w.LongHolds:
		until = time.Now().Add(2 * w.TTL)
	case rand.N(4) == 0 && !w.DeadlineFromReply:
		until = time.Now().Add(rand.N(2 * w.TTL))
	}
	for first := true; time.Now().Before(until); first = false {
		for _, h := range all {
			e := h.event
			e.Kind, e.At, e.Note = history.Looked, uptime(), ""
			if h.lease.Err() != nil {
				time.Sleep(rand.N(w.TTL / 5)) // work takes a while to stop
				return
			}
			w.note(e)
			if first && h.write != nil {
				w.write(h)
			}
		}
		time.Sleep(2 * time.Millisecond) // real: between two tries
	}
}

// writeRegister returns a fenced write to the key's register, under the lease's token.
func (w *worker) writeRegister(h *held) func(context.Context) error {
	l, op := h.lease, h.event.Op
	return func(ctx context.Context) error {
		_, err := fence.UpdateByID(ctx, w.registers, l.Token(), l.Key(), bson.D{{Key: "$set", Value: bson.D{{Key: "op", Value: op}}}})
		return err
	}
}

func (w *worker) write(h held) {
	ctx, cancel := context.WithTimeout(h.lease.Context(context.Background()), w.TTL)
	defer cancel()
	e := h.event
	e.Kind, e.Note = history.Writes, ""
	w.note(e)
	switch err := h.write(ctx); {
	case err == nil:
		e.Kind, e.Note = history.Wrote, h.how
		w.note(e)
	case errors.Is(err, fence.ErrFenced):
		e.Kind, e.At = history.Fenced, uptime()
		e.Live = h.lease.Err() == nil
		w.note(e)
	}
}

// detachOrRelease gives an exclusive key back, or leaves it in a ticket now and then.
func (w *worker) detachOrRelease(h *held) {
	if rand.N(10) > 0 {
		w.release(h.lease.Release, *h)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.TTL)
	defer cancel()
	e := h.event
	e.Kind, e.At, e.Note = history.LetGo, uptime(), history.Detached
	text, err := h.lease.Detach(ctx)
	if err != nil {
		w.release(h.lease.Release, *h)
		return
	}
	w.note(e)
	select {
	case w.detached <- ticket{e.Key, text}:
	default:
	}
}

func (w *worker) release(free func() error, all ...held) {
	w.letGo(history.Released, free, all...)
}

// letGo notes that leases are let go, in one way or another, and does so.
func (w *worker) letGo(way string, free func() error, all ...held) {
	for _, h := range all {
		e := h.event
		e.Kind, e.Note = history.LetGo, way
		w.note(e)
	}
	err := free()
	for _, h := range all {
		e := h.event
		e.Kind, e.Note = history.Freed, ""
		if err != nil {
			e.Note = history.Failure(err)
		}
		w.note(e)
	}
}
