package simulation

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
)

// A process is one client of the library, with its users.
type process struct {
	world  *world
	id     int
	dead   bool // protected by world.mu: nothing it sends arrives any more, and nothing reaches it
	client *mongolock.Client
	coll   *mongo.Collection // of fenced registers; nil without a database
}

const (
	lockDB   = "sim"
	lockColl = "locks"
	regColl  = "registers"
)

func (w *world) process(id int, margin time.Duration) *process {
	p := &process{world: w, id: id}
	var err error
	if w.mem != nil {
		if p.client, err = mongolock.NewWithStore(&remote{w.mem, p}, p.options(margin)...); err != nil {
			panic(err)
		}
		return p
	}
	driver, err := connect(p, w.plan.retries)
	if err != nil {
		panic(err)
	}
	w.suspend(p)
	db := driver.Database(lockDB)
	p.coll = db.Collection(regColl, options.Collection().SetWriteConcern(writeconcern.Majority()))
	p.client, err = mongolock.New(db.Collection(lockColl), p.options(margin)...)
	if err != nil {
		panic(err)
	}
	return p
}

func (p *process) options(margin time.Duration) []mongolock.ClientOption {
	opts := []mongolock.ClientOption{
		mongolock.TTL(p.world.plan.ttl),
		mongolock.WithOwner(fmt.Sprint("client-", p.id)),
		mongolock.WithLogger(slog.New(slog.DiscardHandler)),
	}
	if margin >= 0 {
		opts = append(opts, mongolock.WithMargin(margin))
	}
	if p.world.rng("feed "+itoa(p.id)).chance(200) && (!p.world.plan.noFaults || p.world.plan.deaths) && !p.world.plan.allHear {
		opts = append(opts, mongolock.WithoutFeed())
	}
	return opts
}

// documentOptions are those of the locks of documents.
func (p *process) documentOptions(margin time.Duration) []doclock.Option {
	opts := []doclock.Option{
		doclock.With(mongolock.TTL(p.world.plan.ttl)),
		doclock.WithOwner(fmt.Sprint("client-", p.id)),
		doclock.WithLogger(slog.New(slog.DiscardHandler)),
	}
	if margin >= 0 {
		opts = append(opts, doclock.WithMargin(margin))
	}
	if p.world.rng("feed "+itoa(p.id)).chance(200) && !p.world.plan.noFaults {
		opts = append(opts, doclock.WithoutFeed())
	}
	return opts
}

// isDead reports whether the process was killed.
func (p *process) isDead() bool {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	return p.dead
}

// A ticket is what Detach gave out, with the key that it is for.
type ticket struct{ key, text string }

// A ticketPool has the tickets that wait for a user to resume them.
type ticketPool struct {
	mu      sync.Mutex
	tickets []ticket
}

func (s *ticketPool) put(t ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickets = append(s.tickets, t)
}

func (s *ticketPool) take() (t ticket, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tickets) == 0 {
		return ticket{}, false
	}
	t, s.tickets = s.tickets[0], s.tickets[1:]
	return t, true
}
