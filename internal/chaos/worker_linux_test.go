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

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/internal/history"
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
	Long   bool          // the control: holds are longer than the TTL
}

const ordersVariable = "MONGOLOCK_CHAOS_ORDERS"

// A worker is one process that uses the library until it is killed.
type worker struct {
	orders
	client *mongolock.Client
	papers *doclock.Locks[paper]
	coll   *mongo.Collection // of fenced registers
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
	papers, err := doclock.New[paper](db.Collection("papers"), doclock.With(opts...))
	if err != nil {
		return err
	}
	w := &worker{orders: o, client: client, papers: papers, log: log, stash: make(chan string, 10)}
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
		w.visit()
		time.Sleep(rand.N(20 * time.Millisecond))
	}
}

func kindOf(err error) string {
	switch {
	case errors.Is(err, mongolock.ErrOutcomeUnknown), errors.Is(err, context.DeadlineExceeded):
		return history.Unknown
	case errors.Is(err, mongolock.ErrHeld), errors.Is(err, mongolock.ErrModeMismatch):
		return history.Held
	}
	return history.Sure
}
