package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/mongolock/mongolock"
)

// A connection is the part of the command line that says where the locks are.
type connection struct {
	URI        string `name:"uri" group:"common" help:"Connection string (default: mongodb://localhost:27017)." env:"MONGOLOCK_URI,MONGODB_URI" default:"mongodb://localhost:27017" placeholder:"URI"`
	DB         string `name:"db" group:"common" help:"Database (default: that of the connection string, or else mongolock)." env:"MONGOLOCK_DB" placeholder:"NAME"`
	Collection string `group:"common" help:"Collection (default: locks; for jobs jobs, for once and once-ls once)." env:"MONGOLOCK_COLLECTION" placeholder:"NAME"`
	Owner      string `group:"common" help:"Name of this process, which others see (default: host/pid)." env:"MONGOLOCK_OWNER" placeholder:"NAME"`
	Verbose    bool   `group:"common" short:"v" help:"Log what the library does to standard error."`
}

// standardURI is the default of --uri.
const standardURI = "mongodb://localhost:27017"

// reachFor is how long a server may take to be found. An unreachable server is reported within
// five seconds.
const reachFor = 4500 * time.Millisecond

// An attempt remembers why servers could not be reached.
type attempts struct {
	mu     sync.Mutex
	failed map[string]error // by address
}

func (a *attempts) add(e *event.ServerHeartbeatFailedEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	address, _, _ := strings.Cut(e.ConnectionID, "[")
	a.failed[address] = e.Failure
}

func (a *attempts) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for address, err := range a.failed {
		text := sentence(err)
		if i := strings.LastIndex(text, "dial "); i >= 0 {
			text = text[i:]
		}
		return fmt.Sprintf("%s (%s)", address, text)
	}
	return "none was found"
}

// options reads the connection string.
func (c *connection) options() (*options.ClientOptions, *connstring.ConnString, error) {
	type parsed struct {
		opts *options.ClientOptions
		cs   *connstring.ConnString
		err  error
	}
	done := make(chan parsed, 1)
	go func() { // a mongodb+srv address asks a name server, which may not answer
		cs, err := connstring.ParseAndValidate(c.URI)
		if err != nil {
			done <- parsed{err: err}
			return
		}
		opts := options.Client().ApplyURI(c.URI)
		done <- parsed{opts, cs, opts.Validate()}
	}()
	select {
	case p := <-done:
		if p.err != nil {
			return nil, nil, exitf(exitUsage, "--uri: %s", c.redact(sentence(p.err)))
		}
		return p.opts, p.cs, nil
	case <-time.After(reachFor):
		return nil, nil, exitf(exitUnreachable, "--uri: the name server does not answer")
	}
}

// redact removes the password from a text.
func (c *connection) redact(text string) string {
	if _, rest, ok := strings.Cut(c.URI, "://"); ok {
		if i := strings.LastIndex(rest, "@"); i >= 0 {
			if _, password, ok := strings.Cut(rest[:i], ":"); ok && password != "" {
				return strings.ReplaceAll(text, password, "…")
			}
		}
	}
	return text
}

// A deployment is the deployment that the command line named, after it was reached.
type deployment struct {
	client *mongo.Client
	uri    *connstring.ConnString
	opts   *options.ClientOptions
	db     *mongo.Database
}

// reach connects and makes sure that a primary answers.
func (c *connection) reach(ctx context.Context) (*deployment, error) {
	opts, cs, err := c.options()
	if err != nil {
		return nil, err
	}
	tried := &attempts{failed: map[string]error{}}
	opts.SetAppName(cmp.Or(cs.AppName, "mongolock"))
	opts.SetServerMonitor(&event.ServerMonitor{ServerHeartbeatFailed: tried.add})
	client, err := mongo.Connect(opts)
	if err != nil {
		return nil, exitf(exitUsage, "--uri: %s", c.redact(sentence(err)))
	}
	d := &deployment{client: client, uri: cs, opts: opts, db: client.Database(cmp.Or(c.DB, cs.Database, "mongolock"))}
	if err := d.ping(ctx); err != nil {
		go d.close() // a server that does not answer need not be told
		switch {
		case refusesUser(err):
			return nil, exitf(exitRights, "the server %s refuses the user: %s", c.source(), c.redact(last(err)))
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		return nil, exitf(exitUnreachable, "no server %s can be reached: %s", c.source(), c.redact(tried.String()))
	}
	return d, nil
}

// source says where the connection string comes from.
func (c *connection) source() string {
	switch c.URI {
	case standardURI:
		return "at " + standardURI + " (the default; --uri or MONGOLOCK_URI names another)"
	case os.Getenv("MONGOLOCK_URI"):
		return "of MONGOLOCK_URI"
	case os.Getenv("MONGODB_URI"):
		return "of MONGODB_URI"
	}
	return "of --uri"
}

// ping returns in time, whatever the driver does.
func (d *deployment) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachFor)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- d.client.Ping(ctx, readpref.Primary()) }() // ends with ctx
	select {
	case err := <-answer:
		return err
	case <-time.After(reachFor + 200*time.Millisecond):
		return context.DeadlineExceeded
	}
}

// last returns the innermost error's text.
func last(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return sentence(err)
		}
		err = inner
	}
}

func (d *deployment) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = d.client.Disconnect(ctx)
}

// collection returns the collection that the command line names, or else the command's own.
func (d *deployment) collection(c *connection, standard string) *mongo.Collection {
	return d.db.Collection(cmp.Or(c.Collection, standard))
}

// logger returns where the library logs: nowhere, unless asked.
func (c *connection) logger() *slog.Logger {
	if !c.Verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// clientOptions returns the options of the command line, and others.
func (a *app) clientOptions(opts ...mongolock.ClientOption) []mongolock.ClientOption {
	opts = append(opts, mongolock.WithLogger(a.logger()))
	if a.Owner != "" {
		opts = append(opts, mongolock.WithOwner(a.Owner))
	}
	return opts
}

// locks makes a client of the library on the collection of locks.
func (a *app) locks(d *deployment, opts ...mongolock.ClientOption) (*mongolock.Client, error) {
	return mongolock.New(d.collection(&a.connection, "locks"), a.clientOptions(opts...)...)
}

// withLocks reaches the deployment and calls f with a client that only looks.
func (a *app) withLocks(ctx context.Context, f func(*deployment, *mongolock.Client) error) error {
	if err := a.checkOwner(); err != nil {
		return err
	}
	d, err := a.reach(ctx)
	if err != nil {
		return err
	}
	defer d.close()
	client, err := a.locks(d)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it holds nothing
	return f(d, client)
}
