package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
)

// An app is what a command works with.
type app struct {
	*cli
	stdout, stderr io.Writer
	model          *kong.Application

	ctx      context.Context // a signal ends it, with the signal as its cause, until caught is called
	caught   func()
	watching bool // Ctrl-C is the usual end of this command

	ends []func() // called when the command ends, the last one first
}

func (a *app) asJSON() bool { return a.Output == "json" }

// atEnd has f called when the command ends.
func (a *app) atEnd(f func()) { a.ends = append(a.ends, f) }

func (a *app) end() {
	for _, f := range slices.Backward(a.ends) {
		f()
	}
	a.caught()
}

// checkName refuses a name that no document can have.
func checkName(what, name string, most int) error {
	switch {
	case name == "":
		return exitf(exitUsage, "%s: the name is empty", what)
	case len(name) > most:
		return exitf(exitUsage, "%s: the name has %d bytes: at most %d", what, len(name), most)
	case !utf8.ValidString(name):
		return exitf(exitUsage, "%s: the name is not valid UTF-8", what)
	}
	return nil
}

// teller returns one for a lock, or for what is about none.
func (a *app) teller(key string) teller { return teller{a.stderr, a.asJSON(), key} }

// say tells people something on standard error.
func (a *app) say(format string, args ...any) {
	a.teller("").tell("note", fmt.Sprintf(format, args...), nil)
}

// A teller is the only way on which messages get to standard error.
type teller struct {
	w      io.Writer
	asJSON bool
	key    string // of the lock that it tells about
}

// tell reports an event: in text only if a person has to know it.
func (t teller) tell(event, text string, more map[string]any) {
	if !t.asJSON {
		if text != "" {
			_, _ = fmt.Fprintf(t.w, "mongolock: %s\n", clean(text)) // standard error may be closed: then the line is lost
		}
		return
	}
	line := map[string]any{"event": event, "at": time.Now().UTC().Format(time.RFC3339Nano)}
	if t.key != "" {
		line["key"] = t.key
	}
	if text != "" {
		line["text"] = cut(text)
	}
	maps.Copy(line, more)
	_ = encode(t.w, line)
}

// logger returns where the library logs: nowhere, unless asked.
func (a *app) logger() *slog.Logger {
	switch {
	case !a.Verbose:
		return slog.New(slog.DiscardHandler)
	case a.asJSON():
		return slog.New(slog.NewJSONHandler(printable{a.stderr}, nil))
	}
	return slog.New(slog.NewTextHandler(printable{a.stderr}, nil))
}

// client returns a client with the options of the command line, and others. What New refuses is wrong usage.
func (a *app) client(coll *mongo.Collection, opts ...mongolock.ClientOption) (*mongolock.Client, error) {
	if opts = append(opts, mongolock.WithLogger(a.logger())); a.Owner != "" {
		opts = append(opts, mongolock.WithOwner(a.Owner))
	}
	client, err := mongolock.New(coll, opts...)
	if err != nil {
		return nil, exitf(exitUsage, "%s", reason(err))
	}
	a.atEnd(func() { _ = client.Close() }) // it holds nothing any more, or has said so
	return client, nil
}

// collection reaches the deployment and returns the collection that the command line names, or else the
// command's own.
func (a *app) collection(standard string) (*mongo.Collection, error) {
	d, err := a.reach()
	if err != nil {
		return nil, err
	}
	a.atEnd(d.close)
	return d.collection(&a.connection, standard), nil
}

// locks returns the collection of locks, and a client of it that only looks.
func (a *app) locks() (*mongo.Collection, *mongolock.Client, error) {
	coll, err := a.collection("locks")
	if err != nil {
		return nil, nil, err
	}
	client, err := a.client(coll)
	return coll, client, err
}

// table returns a printer that says, if nothing was found, where.
func (a *app) table(coll *mongo.Collection, heading ...string) *printer {
	p := a.printer(heading...)
	p.none = func() {
		if !a.missing(coll) {
			a.say("nothing in %s.%s", coll.Database().Name(), coll.Name())
		}
	}
	return p
}

// missing says so, and reports it, if a collection or its database does not exist.
func (a *app) missing(coll *mongo.Collection) bool {
	db := coll.Database()
	names, err := db.ListCollectionNames(a.ctx, bson.D{})
	switch {
	case err != nil || slices.Contains(names, coll.Name()):
		return false
	case len(names) == 0:
		a.say("there is no database %s (--db names another)", db.Name())
	default:
		a.say("there is no collection %s.%s (--db and --collection name another)", db.Name(), coll.Name())
	}
	return true
}

// each shows everything that a list yields, and writes the rest of the table.
func each[T any](p *printer, all iter.Seq2[T, error], show func(T) error) error {
	for v, err := range all {
		if err == nil {
			err = show(v)
		}
		if err != nil {
			return err
		}
	}
	return p.flush()
}

// untilSignal returns a context that a signal ends, with the signal as its cause. A second one ends the
// process.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		defer cancel(nil)
		select {
		case s := <-signals:
			cancel(&signalError{s.(syscall.Signal)})
			signal.Stop(signals)
			return
		case <-over:
		}
		select { // one that came just before
		case s := <-signals:
			cancel(&signalError{s.(syscall.Signal)})
		default:
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(over)
		<-ended
	})
}

type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string { return e.signal.String() }

// signalled returns the signal that has ended a context, or 0.
func signalled(ctx context.Context) syscall.Signal {
	var s *signalError
	if errors.As(context.Cause(ctx), &s) {
		return s.signal
	}
	return 0
}

// stopped returns the error of a command: the signal's, if one has ended its ctx before it was done.
func (a *app) stopped(err error) error {
	s := signalled(a.ctx)
	switch {
	case s == 0 || err == nil:
		return err
	case a.watching && s == syscall.SIGINT:
		return nil
	}
	return exitf(exitSignal+int(s), "")
}

// forbidden refuses names of databases and collections with characters that the server refuses.
func forbidden(what, name, chars string) error {
	if name == "" || !strings.ContainsAny(name, chars) && utf8.ValidString(name) {
		return nil
	}
	return exitf(exitUsage, "%s: %q is no name of a database or collection", what, name)
}
