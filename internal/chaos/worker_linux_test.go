package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/internal/simulation/history"
)

// orders are what a worker process is told, as JSON in its environment.
type orders struct {
	URI    string
	DB     string
	Log    string
	Client int
	First  int // number of its first call
	Users  int
	Keys   []string
	TTL    time.Duration
	Margin time.Duration // negative: the default
	Reply  bool          // the control: deadline from the reply
	Long   bool          // holds are long
}

const ordersVariable = "MONGOLOCK_CHAOS_ORDERS"

// A worker is one process that uses the library until it is killed.
type worker struct {
	orders
	client *mongolock.Client
	coll   *mongo.Collection
	log    *os.File
	ops    atomic.Int64
	stash  chan string
}

// work is the process's main: it never returns but by a signal.
func work(o orders) error {
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	driver, err := mongo.Connect(options.Client().ApplyURI(o.URI).SetServerSelectionTimeout(2 * time.Second).SetConnectTimeout(time.Second))
	if err != nil {
		return err
	}
	db := driver.Database(o.DB)
	opts := []mongolock.ClientOption{mongolock.TTL(o.TTL), mongolock.WithOwner(fmt.Sprint("client-", o.Client)), mongolock.WithLogger(slog.New(slog.DiscardHandler))}
	if o.Margin >= 0 {
		opts = append(opts, mongolock.WithMargin(o.Margin))
	}
	client, err := mongolock.New(db.Collection("locks"), opts...)
	if err != nil {
		return err
	}
	w := &worker{orders: o, client: client, log: log, stash: make(chan string, 10)}
	w.coll = db.Collection("registers", options.Collection().SetWriteConcern(writeconcern.Majority()))
	w.ops.Store(int64(o.First))
	var users sync.WaitGroup
	for range o.Users {
		users.Go(w.use)
	}
	users.Wait()
	return nil
}

// note writes one event with one system call: what is written outlives a kill.
func (w *worker) note(e history.Event) {
	e.Client = w.Client
	if e.At == 0 {
		e.At = uptime()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = w.log.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

func (w *worker) use() {
	for {
		w.visit(w.Keys[rand.N(len(w.Keys))])
		time.Sleep(rand.N(20 * time.Millisecond))
	}
}

// visit is one acquisition, held for a while.
func (w *worker) visit(key string) {
	op := int(w.ops.Add(1))
	ctx, cancel := context.WithTimeout(context.Background(), 2*w.TTL)
	defer cancel()
	note := ""
	var l *mongolock.Lease
	var err error
	how := rand.N(10)
	ticket := ""
	if how == 0 {
		select {
		case ticket = <-w.stash:
			key, note = keyOf(ticket), history.Resumed
		default:
		}
	}
	w.note(history.Event{Kind: history.Called, Key: key, Op: op, Note: note})
	switch {
	case ticket != "":
		l, err = w.client.Resume(ctx, ticket)
	case how < 3:
		l, err = w.client.TryAcquire(ctx, key)
	case how == 3:
		l, err = w.client.Acquire(ctx, key, mongolock.MaxHold(w.TTL/4+rand.N(w.TTL)))
	case how == 4:
		l, err = w.client.Acquire(ctx, key, mongolock.NoRenewal())
	case how == 5:
		l, err = w.client.Acquire(ctx, key, mongolock.MinHold(rand.N(w.TTL/4)))
	default:
		l, err = w.client.Acquire(ctx, key)
	}
	if err != nil {
		w.note(history.Event{Kind: history.Failed, Key: key, Op: op, Note: kindOf(err)})
		return
	}
	w.hold(l, op, note)
}

func kindOf(err error) string {
	switch {
	case errors.Is(err, mongolock.ErrOutcomeUnknown), errors.Is(err, context.DeadlineExceeded):
		return history.Unknown
	case errors.Is(err, mongolock.ErrHeld):
		return history.Held
	}
	return history.Sure
}

// hold looks at the lease again and again, and writes down each look that said that
// it is held.
func (w *worker) hold(l *mongolock.Lease, op int, note string) {
	e := history.Event{Key: l.Key(), Op: op, ID: l.ID(), Token: l.Token()}
	if l.Err() != nil {
		return // over before anybody could believe in it
	}
	e.Kind, e.Note = history.Granted, note
	w.note(e)
	e.Note = ""
	most := 50 * time.Millisecond
	if w.Long || rand.N(4) == 0 {
		most = 2 * w.TTL
	}
	until := time.Now().Add(rand.N(most))
	var wrote bool
	for time.Now().Before(until) {
		e.Kind, e.At = history.Looked, uptime()
		if l.Err() != nil {
			time.Sleep(rand.N(w.TTL / 5)) // it takes a while to stop
			break
		}
		w.note(e)
		if !wrote {
			wrote = true
			w.write(l, e)
		}
		time.Sleep(2 * time.Millisecond)
	}
	e.At = 0
	if rand.N(10) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), w.TTL)
		defer cancel()
		e.Kind, e.At = history.LetGo, uptime()
		if ticket, err := l.Detach(ctx); err == nil {
			e.Note = history.Detached
			w.note(e)
			select {
			case w.stash <- ticket:
			default:
			}
			return
		}
		e.At = 0
	}
	e.Kind, e.Note = history.LetGo, history.Released
	w.note(e)
	err := l.Release()
	e.Kind, e.Note = history.Freed, ""
	if err != nil {
		e.Note = kindOf(err)
	}
	w.note(e)
}

// write writes to the key's register under the lease's token.
func (w *worker) write(l *mongolock.Lease, e history.Event) {
	ctx, cancel := context.WithTimeout(l.Context(context.Background()), w.TTL)
	defer cancel()
	e.At = 0
	e.Kind = history.Writes
	w.note(e)
	_, err := fence.UpdateByID(ctx, w.coll, l.Token(), l.Key(), bson.D{{Key: "$set", Value: bson.D{{Key: "op", Value: e.Op}}}})
	switch {
	case err == nil:
		e.Kind = history.Wrote
		w.note(e)
	case errors.Is(err, fence.ErrFenced):
		e.Kind, e.At = history.Fenced, uptime()
		if l.Err() == nil {
			e.Live = true
		}
		w.note(e)
	}
}
