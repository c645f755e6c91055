package mongobase

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongoclock"
)

// An Attempt is one claim in a session of its own, fresh and ended with it. What
// is sent later in that session has a higher transaction number, and the server
// then refuses what was sent before and is still on its way. An attempt of unknown
// outcome keeps its session until it is settled, so that its clean-up does just
// that.
type Attempt struct {
	session *mongo.Session // nil where the server has none
	expires mongoclock.Moment

	// Twin: a refused command may have one that the driver gave up and that is still
	// in a socket. It is harmless once a later write in the session was answered. If
	// the refusal came quickly there is hardly one; if not, this is set.
	Twin bool
}

// Slow is how long a refusal takes that may have left a twin behind.
const Slow = time.Second

// Begin opens the attempt of a claim for that long. Nothing is sent.
func (b *Base) Begin(ttl time.Duration) (*Attempt, error) {
	a := &Attempt{expires: b.Clock.Now().Add(ttl + ttl/8 + time.Second)}
	if !b.Kind().Sessions {
		return a, nil
	}
	session, err := b.Soft.Database().Client().StartSession(options.Session().SetCausalConsistency(false))
	a.session = session
	return a, err
}

// In puts the attempt's session in the place of the caller's.
func (a *Attempt) In(ctx context.Context) context.Context {
	return mongo.NewSessionContext(ctx, a.session)
}

// End ends the session; nothing is sent.
func (a *Attempt) End() {
	if a.session != nil {
		a.session.EndSession(context.Background()) // no transaction in it
	}
}

// Answered notes that the server answered a write of the session: what was sent
// before it is refused from now on. If this one was itself refused, slowly, it
// leaves a twin of its own.
func (a *Attempt) Answered(r Reply, refused bool) { a.Twin = refused && r.Took > Slow }

// OperationTime is that of the latest reply, where the server tells it with the
// cluster's time. A server that tells one without the other has it of somewhere
// else than its log.
func (a *Attempt) OperationTime() (bson.Timestamp, bool) {
	if a.session == nil || a.session.ClusterTime() == nil || a.session.OperationTime() == nil {
		return bson.Timestamp{}, false
	}
	return *a.session.OperationTime(), true
}

// A Memory is the attempts whose outcome is unknown, by the IDs of their claims,
// and the claims that were undone before they were sent.
type Memory struct {
	mu      sync.Mutex // protects the rest; never held across a command
	pending map[string]*Attempt

	undone, undoneBefore map[string]struct{}
}

// undoneMost bounds the memory of claims undone before they were sent. None ever
// is, but in tests that put a network between engine and store.
const undoneMost = 2048

// Keep keeps an attempt of unknown outcome until it is undone, or has run out.
func (m *Memory) Keep(id string, a *Attempt, now mongoclock.Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending == nil {
		m.pending = map[string]*Attempt{}
	}
	for old, p := range m.pending { // few at any time; those nobody settled have run out
		if p.expires < now {
			p.End()
			delete(m.pending, old)
		}
	}
	m.pending[id] = a
}

// Take hands out the attempt of that ID, which is the caller's until he keeps it
// again: a session is not safe for concurrent use.
func (m *Memory) Take(id string) (*Attempt, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.pending[id]
	delete(m.pending, id)
	return a, ok
}

// Undo remembers a claim that must not be made any more.
func (m *Memory) Undo(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.undone == nil || len(m.undone) >= undoneMost {
		m.undone, m.undoneBefore = map[string]struct{}{}, m.undone
	}
	m.undone[id] = struct{}{}
}

// WasUndone reports whether Undo was called for it.
func (m *Memory) WasUndone(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, now := m.undone[id]
	_, before := m.undoneBefore[id]
	return now || before
}

// tokenEpoch is 2020-01-01: with it tokens are positive until 2088.
const tokenEpoch = 1577836800

// Token orders grants as the server's log does (docs/design.md §4.7).
func Token(t bson.Timestamp) int64 { return (int64(t.T)-tokenEpoch)<<32 | int64(t.I) }
