// Package stage has what the examples need besides what they show: a database, and
// further processes of the same program.
package stage

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/devmongo"
)

// An Example is a program that runs as several processes. A person starts the first,
// which tells the story. It starts the others with Process and gives each a role and an
// Order.
type Example[Order any] struct {
	Name  string
	Check func() error // of the flags; nil: any are good
	Story func(context.Context, *Scratch) error
	Role  func(ctx context.Context, role string, o Order) error // what the other processes do
}

// Main is the main function of the example. It returns when the process has done its
// part, and exits with 1 if that fails. Declare flags before.
func (e Example[Order]) Main() {
	log.SetFlags(0)
	log.SetPrefix(e.Name + ": ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := e.run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func (e Example[Order]) run(ctx context.Context) (err error) {
	if role := os.Getenv(envRole); role != "" {
		var o Order
		if err := json.Unmarshal([]byte(os.Getenv(envOrder)), &o); err != nil {
			return err
		}
		return e.Role(ctx, role, o)
	}
	uri := flag.String("uri", "", "the MongoDB to run on (default: a server that is built in)")
	flag.Parse()
	if e.Check != nil {
		if err := e.Check(); err != nil {
			return err
		}
	}
	scratch, err := start(ctx, e.Name, *uri)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.stop()) }()
	return e.Story(ctx, scratch)
}

// A Place is the database of one run, which all of its processes use.
type Place struct{ URI, Database string }

// Open connects to the place, and notices soon if the server is gone. Call leave at the
// end.
func (p Place) Open() (db *mongo.Database, leave func(), err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(p.URI).SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		return nil, nil, err
	}
	return client.Database(p.Database), func() { client.Disconnect(context.Background()) }, nil
}

// Locks opens the place and makes a client on its collection of locks. Call leave at
// the end.
func (p Place) Locks(owner string, opts ...mongolock.ClientOption) (locks *mongolock.Client, db *mongo.Database, leave func(), err error) {
	db, disconnect, err := p.Open()
	if err != nil {
		return nil, nil, nil, err
	}
	opts = append(opts, mongolock.WithOwner(owner), mongolock.WithoutIndex()) // the database is dropped soon
	locks, err = mongolock.New(db.Collection("locks"), opts...)
	if err != nil {
		disconnect()
		return nil, nil, nil, err
	}
	return locks, db, func() { locks.Close(); disconnect() }, nil
}

// A Scratch is a Place that is made for one run of an example and removed after it.
type Scratch struct {
	Place
	Server string // a description for people

	end func() error // ends the server if it is ours
}

// start makes a scratch database on the server at uri or, if that is empty, on one
// inside this process.
func start(ctx context.Context, example, uri string) (*Scratch, error) {
	s := &Scratch{
		Place: Place{URI: uri, Database: example + "_" + rand.Text()[:8]}, Server: "the one at -uri",
		end: func() error { return nil },
	}
	if uri == "" {
		embedded, err := devmongo.Start(ctx, devmongo.WithKind(devmongo.FerretDB))
		if err != nil {
			return nil, err
		}
		s.URI, s.Server, s.end = embedded.URI(), "FerretDB, built in", embedded.Stop
	}
	return s, nil
}

// stop removes the database, and ends the server if start started it.
func (s *Scratch) stop() error { return errors.Join(s.drop(), s.end()) }

func (s *Scratch) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	db, leave, err := s.Open()
	if err != nil {
		return err
	}
	defer leave()
	if err := db.Drop(ctx); err != nil {
		return fmt.Errorf("the database %s is left behind: %w", s.Database, err)
	}
	return nil
}

// Process prepares another process of this program, with a role and an order. It is
// killed when ctx ends.
func Process(ctx context.Context, role string, order any) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), envRole+"="+role, envOrder+"="+string(text))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd, nil
}

const (
	envRole  = "MONGOLOCK_EXAMPLE_ROLE"
	envOrder = "MONGOLOCK_EXAMPLE_ORDER"
)

// A Crew is the set of processes that a story has started and that still run.
type Crew map[string]*exec.Cmd // by name

// Start starts a process in the role of its name.
func (c Crew) Start(ctx context.Context, name string, order any) error {
	cmd, err := Process(ctx, name, order)
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c[name] = cmd
	return nil
}

// End sends a process a signal that ends it, and waits until it has ended.
func (c Crew) End(name string, how os.Signal) error {
	cmd := c[name]
	if cmd == nil {
		return fmt.Errorf("%s does not run", name)
	}
	if err := cmd.Process.Signal(how); err != nil {
		return err
	}
	cmd.Wait() //nolint:errcheck // the signal ended it
	delete(c, name)
	return nil
}

// Wait waits until all have ended, and reports those that failed.
func (c Crew) Wait() error {
	var errs []error
	for name, cmd := range c {
		if err := cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	clear(c)
	return errors.Join(errs...)
}

// Sleep waits, unless ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
