package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/internal/test/history"
)

// orders tell a worker process what to do.
type orders struct {
	URI     string
	Via     map[string]string // the proxy of each member's address, in front of a set
	DB      string
	Log     string
	Client  int
	FirstOp int // number of its first call
	Users   int
	Keys    []string
	TTL     time.Duration
	Margin  time.Duration // negative: the default

	Server   string // what testserver.Start is asked for
	Discover bool   // the URI is a set's, whose members the driver finds

	DeadlineFromReply bool // for the control
	LongHolds         bool // for the control: longer than the TTL

	Paths           bool // workers lock paths, and nothing else
	PathWithoutLook bool // for the control

	Python       string // the interpreter of every other worker, which is testdata/worker.py; empty: all are in Go
	PythonTrusts bool   // for the control: it does not ask whether a lease is over
	PythonHasty  bool   // for the control: half a TTL of silence is enough for it
}

const (
	workerRole = "worker"

	lockColl     = "locks"
	registerColl = "registers"
	documentColl = "documents"
)

// A worker is one process that uses the library until it is killed.
type worker struct {
	orders
	locks     *mongo.Collection
	options   []mongolock.ClientOption
	client    *mongolock.Client
	documents *doclock.Locks[guarded]
	registers *mongo.Collection
	log       *os.File
	ops       atomic.Int64
	closed    atomic.Int64 // clients that were to be closed with a lease
	detached  chan ticket  // waiting to be resumed
}

// A ticket is what Detach gave out, with the key that it is for.
type ticket struct{ key, text string }

// work does not return before the process's parent has died.
func work(_ context.Context, o orders) error {
	takeSafetiesOut(o)
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	connect := options.Client().ApplyURI(o.URI).SetServerSelectionTimeout(2 * time.Second).SetConnectTimeout(time.Second)
	if len(o.Via) > 0 {
		connect.SetDialer(through(o.Via))
	}
	driver, err := mongo.Connect(connect)
	if err != nil {
		return err
	}
	db := driver.Database(o.DB)
	owner, quiet := ownerOf(o), slog.New(slog.DiscardHandler)
	opts := []mongolock.ClientOption{mongolock.TTL(o.TTL), mongolock.WithOwner(owner), mongolock.WithLogger(quiet)}
	forDocuments := []doclock.Option{doclock.With(mongolock.TTL(o.TTL)), doclock.WithOwner(owner), doclock.WithLogger(quiet)}
	if o.Margin >= 0 {
		opts, forDocuments = append(opts, mongolock.WithMargin(o.Margin)), append(forDocuments, doclock.WithMargin(o.Margin))
	}
	locks := db.Collection(lockColl)
	client, err := mongolock.New(locks, opts...)
	if err != nil {
		return err
	}
	documents, err := doclock.New[guarded](db.Collection(documentColl), forDocuments...)
	if err != nil {
		return err
	}
	w := &worker{orders: o, locks: locks, options: opts, client: client, documents: documents, log: log, detached: make(chan ticket, 10)}
	w.registers = db.Collection(registerColl, options.Collection().SetWriteConcern(writeconcern.Majority()))
	w.ops.Store(int64(o.FirstOp))
	var users sync.WaitGroup
	for range o.Users {
		users.Go(w.use)
	}
	users.Wait()
	return nil
}

// ownerOf is the owner of a worker's leases.
func ownerOf(o orders) string { return fmt.Sprint("client-", o.Client) }

// through is a dialer that reaches each server by way of its proxy.
type through map[string]string

func (via through) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	proxy, ok := via[address]
	if !ok {
		return nil, fmt.Errorf("%s is no member: the proxies are %v", address, via)
	}
	return (&net.Dialer{}).DialContext(ctx, network, proxy)
}

// note writes down one event.
func (w *worker) note(e history.Event) {
	e.Client = w.Client
	if e.At == 0 {
		e.At = uptime()
	}
	w.writeDown(e)
}

// writeDown writes a line with one system call: what was written outlives a kill.
func (w *worker) writeDown(what any) {
	line, err := json.Marshal(what)
	if err == nil {
		_, err = w.log.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

func (w *worker) use() {
	for {
		w.acquireSomething()
		time.Sleep(rand.N(20 * time.Millisecond))
	}
}
