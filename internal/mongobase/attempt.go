package mongobase

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/internal/mongoerr"
)

// An Attempt is one claim in a session of its own, fresh and ended with it. What
// is sent later in that session has a higher transaction number, and the server
// then refuses what was sent before and is still on its way. An attempt of unknown
// outcome keeps its session until it is settled, so that its clean-up does just
// that.
type Attempt struct {
	id      string
	session *mongo.Session // nil where the server has none
	expires mongoclock.Moment

	// Twin: a refused command may have one that the driver gave up and that is still
	// in a socket. It is harmless once a later write in the session was answered. If
	// the refusal came quickly there is hardly one; if not, this is set.
	Twin bool

	// Rev is what the store's clean-up wants to know of the claim: the revision that
	// it named last. Zero if it named none.
	Rev bson.ObjectID
}

// Slow is how long a refusal takes that may have left a twin behind.
const Slow = time.Second

var (
	errUndone = errors.New("this claim was undone before it was made")
	fresh     = options.Session().SetCausalConsistency(false)
)

// Begin opens the attempt of the claim of that ID. Nothing of the claim is sent
// yet, and an error says so.
func (b *Base) Begin(ctx context.Context, id string, ttl time.Duration) (*Attempt, error) {
	if b.memory.wasUndone(id) {
		return nil, mongoerr.NotApplied(errUndone)
	}
	if _, err := b.Read(ctx); err != nil {
		return nil, mongoerr.NotApplied(err)
	}
	a := &Attempt{id: id, expires: b.Clock.Now().Add(ttl + ttl/8 + time.Second)}
	if !b.Kind().Sessions {
		return a, nil
	}
	var err error
	a.session, err = b.Soft.Database().Client().StartSession(fresh)
	if err != nil {
		return nil, mongoerr.NotApplied(err)
	}
	return a, nil
}

// In puts the attempt's session in the place of the caller's.
func (a *Attempt) In(ctx context.Context) context.Context {
	return mongo.NewSessionContext(ctx, a.session)
}

// Answered notes that the server answered a write of the session: what was sent
// before it is refused from now on. If this one was itself refused, slowly, it
// leaves a twin of its own.
func (a *Attempt) Answered(r Reply, refused bool) { a.Twin = refused && r.Took > Slow }

// NotApplied marks a fault of a command beside the claim's own. What came before it
// in the attempt was refused, so nothing was applied, unless it left a twin.
func (a *Attempt) NotApplied(err error) error {
	if a.Twin {
		return err
	}
	return mongoerr.NotApplied(err)
}

// RefusedOrUnknown marks the error of a claim's own command. A refusal that took
// long may be that of a retry, and is then no answer to the first send.
func RefusedOrUnknown(r Reply, err error) error {
	if r.Took > Slow && mongoerr.ClassOf(err).Sent() {
		return err
	}
	return mongoerr.Mark(err)
}

// OperationTime is that of the latest reply, where the server tells it with the
// cluster's time. A server that tells one without the other has it of somewhere
// else than its log.
func (a *Attempt) OperationTime() (bson.Timestamp, bool) {
	if a.session == nil || a.session.ClusterTime() == nil || a.session.OperationTime() == nil {
		return bson.Timestamp{}, false
	}
	return *a.session.OperationTime(), true
}

// Over ends an attempt that is answered for certain, and keeps one that is not
// until it is undone, or has run out.
func (b *Base) Over(a *Attempt, certain bool) {
	if certain {
		a.end()
		return
	}
	b.memory.keep(a, b.Clock.Now())
}

func (a *Attempt) end() {
	if a.session != nil {
		a.session.EndSession(context.Background()) // no transaction in it: nothing is sent
	}
}

// Undo runs the clean-up of the claim of that ID, in its session: the newer
// transaction number makes the server refuse the claim if it comes later, also if
// the clean-up found nothing. Where writes have no numbers, having found nothing
// proves nothing, and it is to be repeated; having found the claim settles it, as
// that was sent but once.
//
// A claim without an unsettled attempt was answered for certain, or has run out, or
// was never made, and then it is not made any more. Its clean-up has an attempt
// without a session.
func (b *Base) Undo(ctx context.Context, id string, cleanUp func(context.Context, *Attempt) (found bool, err error)) (settled bool, err error) {
	a, pending := b.memory.take(id)
	if !pending {
		a = new(Attempt)
	}
	found, err := cleanUp(a.In(ctx), a)
	settled = err == nil && (found || !pending || b.Kind().Numbers || knob.UndoOnce)
	switch {
	case pending:
		b.Over(a, settled)
	case settled && !found:
		b.memory.undo(id)
	}
	return settled, mongoerr.Mark(err)
}

// A memory is the attempts whose outcome is unknown, by the IDs of their claims,
// and the claims that were undone before they were sent.
type memory struct {
	mu      sync.Mutex // protects the rest; never held across a command
	pending map[string]*Attempt

	undone, undoneBefore map[string]struct{}
}

// undoneMost bounds the memory of claims undone before they were sent. None ever
// is, but in tests that put a network between engine and store.
const undoneMost = 2048

func (m *memory) keep(a *Attempt, now mongoclock.Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending == nil {
		m.pending = map[string]*Attempt{}
	}
	for old, p := range m.pending { // few at any time; those nobody settled have run out
		if p.expires < now {
			p.end()
			delete(m.pending, old)
		}
	}
	m.pending[a.id] = a
}

// take hands out the attempt of that ID, which is the caller's until he keeps it
// again: a session is not safe for concurrent use.
func (m *memory) take(id string) (*Attempt, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.pending[id]
	delete(m.pending, id)
	return a, ok
}

// undo remembers a claim that must not be made any more.
func (m *memory) undo(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.undone == nil || len(m.undone) >= undoneMost {
		m.undone, m.undoneBefore = map[string]struct{}{}, m.undone
	}
	m.undone[id] = struct{}{}
}

func (m *memory) wasUndone(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, now := m.undone[id]
	_, before := m.undoneBefore[id]
	return now || before
}

// tokenEpoch is 2020-01-01: with it tokens are positive until 2088.
const tokenEpoch = 1577836800

// Token orders grants as the server's log does. The operationTime of a claim's
// reply is not older than the write itself, which was logged after it had passed
// the index on _id; and the next claim of the key is logged after this hold's end,
// which is after the reply. A stamp that the update itself puts in the document
// would not do: it is kept while an insert waits (docs/design.md §4.7).
func Token(t bson.Timestamp) int64 { return (int64(t.T)-tokenEpoch)<<32 | int64(t.I) }
