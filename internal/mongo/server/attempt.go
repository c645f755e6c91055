package server

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// An Attempt is one claim in a session of its own, which ends with it. A later write in that
// session has a higher transaction number, so the server refuses an earlier one that is still
// on its way. An attempt of unknown outcome keeps its session until it is settled: its clean-up
// is that later write.
type Attempt struct {
	Sent Moment // when it began: trust counts from here

	id      string
	session *mongo.Session // nil where the server has none
	life    time.Duration  // an attempt of unknown outcome is kept for this long after it ends
	expires Moment         // that end; set by Over

	// Twin says that a refused command may have a twin: an earlier copy that the driver gave up
	// and that is still in a socket. It is harmless once a later write in the session was
	// answered. After a quick refusal a twin is very unlikely; after a slow one this is set.
	Twin bool

	// Single says that the claim is sent only once, without a transaction number: see
	// Collection.W1NoRetry. It has no twin. But nothing makes the server refuse it later, so its clean-up
	// is repeated as on a server without transaction numbers.
	Single bool

	// Rev is the revision that the claim named last, for the store's clean-up. It is zero if
	// the claim named none.
	Rev int64
}

// Slow is how long a refusal takes from which on it may have left a twin behind.
const Slow = time.Second

var fresh = options.Session().SetCausalConsistency(false)

// Begin opens the attempt of the claim with that ID, and returns ctx with its session. It sends
// nothing of the claim yet; an error matches store.ErrNotApplied. End the attempt with Over.
func (c *Collection) Begin(ctx context.Context, id string, ttl time.Duration) (context.Context, *Attempt, error) {
	a := &Attempt{Sent: c.Clock.Now(), id: id, life: ttl + ttl/8 + time.Second}
	err := c.Sure(ctx)
	if err == nil && c.Kind().Sessions {
		a.session, err = c.W1.Database().Client().StartSession(fresh)
	}
	if err != nil {
		return nil, nil, NotApplied(err)
	}
	return mongo.NewSessionContext(ctx, a.session), a, nil
}

// Answered records that the server answered a write of the session: from now on it refuses what
// was sent before. A write that was itself refused, slowly, may leave a twin.
func (a *Attempt) Answered(r Reply, refused bool) { a.Twin = refused && r.Took > Slow && !a.Single }

// NotApplied marks a fault of a command that follows the claim's own. That was refused before,
// so nothing was applied, unless it left a twin.
func (a *Attempt) NotApplied(err error) error {
	if a.Twin {
		return err
	}
	return NotApplied(err)
}

// RefusedOrUnknown marks the error of a claim's own command. A slow refusal may answer a retry,
// and then says nothing of the first copy.
func RefusedOrUnknown(r Reply, err error) error {
	if r.Took > Slow && ClassOf(err).Sent() {
		return err
	}
	return Classified(err)
}

// OperationTime returns the operation time of the latest reply, if the server tells it together
// with the cluster's time. A server that tells one without the other does not take it from its
// log.
func (a *Attempt) OperationTime() (bson.Timestamp, bool) {
	if a.session == nil || a.session.ClusterTime() == nil || a.session.OperationTime() == nil {
		return bson.Timestamp{}, false
	}
	return *a.session.OperationTime(), true
}

// Over ends an attempt whose answer, an error included, is certain. It keeps any other attempt until
// that is undone, or has run out.
func (c *Collection) Over(a *Attempt, certain bool) {
	if certain {
		a.end()
		return
	}
	now := c.Clock.Now()
	a.expires = now.Add(a.life)
	c.attempts.keep(a, now)
}

func (a *Attempt) end() {
	if a.session != nil {
		a.session.EndSession(context.Background()) // the session has no transaction, so nothing is sent
	}
}

// BeginUndo begins the clean-up of the claim with that ID, and returns ctx with its session. The newer
// transaction number makes the server refuse the claim if it comes later, even if the clean-up finds
// nothing. End it with Undone.
//
// A claim without an unsettled attempt was answered for certain, has run out, or is another process's. Its
// clean-up has an attempt without a session, and is settled once it was sent.
func (c *Collection) BeginUndo(ctx context.Context, id string) (context.Context, *Attempt) {
	a, pending := c.attempts.take(id)
	if !pending {
		a = &Attempt{id: id}
	}
	return mongo.NewSessionContext(ctx, a.session), a
}

// Undone ends a clean-up, which found the claim or did not, and reports whether it is settled. Where
// writes have no transaction numbers, finding nothing proves nothing, and the clean-up is repeated.
// Removing the claim settles it, because it was sent only once.
func (c *Collection) Undone(a *Attempt, found bool, err error) (settled bool, _ error) {
	begun := a.Sent != 0
	settled = err == nil && (found || !begun || c.Kind().Numbers && !a.Single)
	c.Over(a, settled || !begun)
	return settled, Classified(err)
}

// attempts holds the attempts of unknown outcome, by the IDs of their claims.
type attempts struct {
	mu      sync.Mutex // protects the rest; never held across a command
	pending map[string]*Attempt
}

func (m *attempts) keep(a *Attempt, now Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending == nil {
		m.pending = map[string]*Attempt{}
	}
	for old, p := range m.pending { // there are few at any time; these were never settled, and have run out
		if p.expires < now {
			p.end()
			delete(m.pending, old)
		}
	}
	m.pending[a.id] = a
}

// take hands out the attempt with that ID. It belongs to the caller until it is kept again,
// because a session is not safe for concurrent use.
func (m *attempts) take(id string) (*Attempt, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.pending[id]
	delete(m.pending, id)
	return a, ok
}

// tokenEpoch is 2020-01-01: with it tokens are positive until 2088.
const tokenEpoch = 1577836800

// Token returns a token for the operationTime of a grant, so that tokens are ordered as the
// server's log is: the seconds in its upper half, the place in the log of that second in its lower
// half. The operationTime of a claim's reply is not older than the write itself,
// which was logged after it had passed the index on _id. The next claim of the key is logged
// after the end of this hold, which is after the reply. A stamp that the update itself puts in
// the document would not do: it stays the same while an insert waits (docs/internals/design.md §4.7).
func Token(t bson.Timestamp) int64 { return (int64(t.T)-tokenEpoch)<<32 + int64(t.I) }
