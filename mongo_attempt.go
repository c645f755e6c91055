package mongolock

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongoclock"
)

// A mongoAttempt is one claim in a session of its own, fresh and ended with it
// (docs/design.md §4, "Sessions"). Whatever is sent later in that session has a
// higher transaction number, and the server then refuses what was sent before and
// is still on its way. An attempt of unknown outcome keeps its session until it is
// settled, so that its clean-up does just that.
type mongoAttempt struct {
	session *mongo.Session // nil where the server has none
	expires mongoclock.Moment

	// A refused command may have a twin that the driver gave up and that is still in
	// a socket. It is harmless once a later write in the session was answered. If the
	// refusal came quickly there is hardly one; if not, this is set.
	twin bool

	rev bson.ObjectID // the one that its last join named; zero if it sent none
}

// mongoSlow is how long a refusal takes that may have left a twin behind.
const mongoSlow = time.Second

func (m *mongoStore) begin(ttl time.Duration) (*mongoAttempt, error) {
	a := &mongoAttempt{expires: m.clock.Now().Add(ttl + ttl/8 + time.Second)}
	if !m.server.Load().sessions {
		return a, nil
	}
	session, err := m.soft.Database().Client().StartSession(options.Session().SetCausalConsistency(false))
	a.session = session
	return a, err
}

// in puts the attempt's session in the place of the caller's.
func (a *mongoAttempt) in(ctx context.Context) context.Context {
	return mongo.NewSessionContext(ctx, a.session)
}

func (a *mongoAttempt) end() {
	if a.session != nil {
		a.session.EndSession(context.Background()) // no transaction in it: nothing is sent
	}
}

// answered notes that the server answered a write of the session: what was sent
// before it is refused from now on. If this one was itself refused, slowly, it
// leaves a twin of its own.
func (a *mongoAttempt) answered(r mongoReply, refused bool) {
	a.twin = refused && r.took > mongoSlow
}

// operationTime is that of the latest reply, where the server tells it with the
// cluster's time. A server that tells one without the other has it of somewhere
// else than its log.
func (a *mongoAttempt) operationTime() (bson.Timestamp, bool) {
	if a.session == nil || a.session.ClusterTime() == nil || a.session.OperationTime() == nil {
		return bson.Timestamp{}, false
	}
	return *a.session.OperationTime(), true
}

// A mongoMemory is what a store remembers from call to call: the attempts whose
// outcome is unknown, and of a lease what its release will want to know.
type mongoMemory struct {
	mu      sync.Mutex // protects the rest; never held across a command
	pending map[string]*mongoAttempt
	leases  map[string]mongoLease
	sweepAt int

	// Claims undone that were never sent from here. They must not be any more.
	undone, undoneBefore map[string]struct{}
}

// mongoUndone bounds the memory of claims undone before they were sent. None ever
// is, but in tests that put a network between engine and store.
const mongoUndone = 2048

// A mongoLease is remembered from its grant to its end. What is not remembered is
// looked up, or released with more care than needed.
type mongoLease struct {
	since time.Time
	until mongoclock.Moment // may be trusted, and so is worth remembering
}

func (mm *mongoMemory) keep(id string, a *mongoAttempt, now mongoclock.Moment) {
	mm.mu.Lock()
	defer mm.mu.Unlock()
	if mm.pending == nil {
		mm.pending = map[string]*mongoAttempt{}
	}
	for old, p := range mm.pending { // few at any time; those nobody settled have run out
		if p.expires < now {
			p.end()
			delete(mm.pending, old)
		}
	}
	mm.pending[id] = a
}

// take hands out the attempt of that ID, which is the caller's until he keeps it
// again: a session is not safe for concurrent use.
func (mm *mongoMemory) take(id string) (*mongoAttempt, bool) {
	mm.mu.Lock()
	defer mm.mu.Unlock()
	a, ok := mm.pending[id]
	delete(mm.pending, id)
	return a, ok
}

func (mm *mongoMemory) undo(id string) {
	mm.mu.Lock()
	defer mm.mu.Unlock()
	if mm.undone == nil || len(mm.undone) >= mongoUndone {
		mm.undone, mm.undoneBefore = map[string]struct{}{}, mm.undone
	}
	mm.undone[id] = struct{}{}
}

func (mm *mongoMemory) wasUndone(id string) bool {
	mm.mu.Lock()
	defer mm.mu.Unlock()
	_, now := mm.undone[id]
	_, before := mm.undoneBefore[id]
	return now || before
}

func (mm *mongoMemory) granted(id string, since time.Time, until, now mongoclock.Moment) {
	mm.mu.Lock()
	defer mm.mu.Unlock()
	if mm.leases == nil {
		mm.leases = map[string]mongoLease{}
	}
	mm.leases[id] = mongoLease{since: since, until: until}
	if len(mm.leases) < mm.sweepAt {
		return
	}
	for old, l := range mm.leases { // those that nobody released
		if l.until < now {
			delete(mm.leases, old)
		}
	}
	mm.sweepAt = max(64, 2*len(mm.leases))
}

func (mm *mongoMemory) renewed(id string, until mongoclock.Moment) {
	mm.mu.Lock()
	defer mm.mu.Unlock()
	if l, ok := mm.leases[id]; ok && l.until < until {
		l.until = until
		mm.leases[id] = l
	}
}

func (mm *mongoMemory) lease(id string) (mongoLease, bool) {
	mm.mu.Lock()
	defer mm.mu.Unlock()
	l, ok := mm.leases[id]
	return l, ok
}

func (mm *mongoMemory) forget(ids ...string) {
	mm.mu.Lock()
	defer mm.mu.Unlock()
	for _, id := range ids {
		delete(mm.leases, id)
	}
}

// over ends an attempt that is answered for certain, and keeps one that is not
// until it is undone.
func (m *mongoStore) over(id string, a *mongoAttempt, err error) {
	if err == nil || certain(err) {
		a.end()
		return
	}
	m.memory.keep(id, a, m.clock.Now())
}

// notApplied marks a fault of a command beside the claim's own. What came before it
// in the attempt was refused, so nothing was applied, unless it left a twin.
func (a *mongoAttempt) notApplied(err error) error {
	if a.twin {
		return err
	}
	return joinNotApplied(err)
}
