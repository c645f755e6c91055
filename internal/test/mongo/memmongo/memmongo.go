// Package memmongo is a MongoDB in the process: package docdb behind the wire protocol, for
// tests of code that uses this library, in real and in virtual time. The driver is the real
// one, and reaches it through a dialer of its own. There is one server, whose writes are never
// rolled back; it calls itself the primary of a replica set.
//
// It has the commands and operators that package docdb has. Whatever else is asked of it, it
// refuses, and says what: nothing is left out silently.
package memmongo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/test/kit/onecore"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/mongo/wire"
)

// A Server has the data. New makes one.
type Server struct {
	mu    sync.Mutex // protects what follows
	db    *docdb.DB
	news  map[string]chan struct{} // by collection: closed with its next write
	ahead time.Duration            // its clock, before that of the process
	slow  atomic.Int64             // see Slow
	work  Work

	writers map[string]chan struct{} // by document: sending takes the turn to write it
}

// Work says how long a server takes: for each command until it is carried out, and then for the flush of one that waits for a
// majority, whether or not it has changed anything. Commands that modify one document wait for each other.
type Work struct {
	Takes func(docdb.Command) time.Duration
	Flush time.Duration
}

// Slow makes the server take that time for each command, whether or not its client still waits.
func (s *Server) Slow(d time.Duration) { s.slow.Store(int64(d)) }

// Works makes the server work like that, and not only pass on what it is told.
func (s *Server) Works(w Work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work = w
}

// worked does a command in the time that it takes. One that finds nothing to modify when it comes has missed; another one
// waits until nobody else modifies its document.
func (s *Server) worked(c docdb.Command, w Work, over <-chan struct{}) (reply bson.D) {
	s.mu.Lock()
	document, misses := s.db.Modifies(c)
	if s.writers[document] == nil {
		s.writers[document] = make(chan struct{}, 1)
	}
	writer := s.writers[document]
	s.mu.Unlock()
	switch {
	case misses:
		reply = s.do(c, over)
		time.Sleep(w.Takes(c)) //nolint:forbidigo // virtual time: the server is at work
	case document != "":
		writer <- struct{}{}
		time.Sleep(w.Takes(c)) //nolint:forbidigo // the same
		reply = s.do(c, over)
		<-writer
	default:
		time.Sleep(w.Takes(c)) //nolint:forbidigo // the same
		reply = s.do(c, over)
	}
	if c.Majority() {
		time.Sleep(w.Flush) //nolint:forbidigo // the same
	}
	return reply
}

// before2026 is why the clock may have to be ahead: tokens of a time before 2020 are negative,
// and virtual time begins in 2000.
var before2026 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// New makes an empty server.
func New() *Server {
	s := &Server{db: docdb.New(), news: map[string]chan struct{}{}, writers: map[string]chan struct{}{}}
	if now := time.Now(); now.Before(before2026) {
		s.ahead = before2026.Sub(now.Round(0))
	}
	return s
}

// A Link is the way of one client to the server.
type Link struct {
	server  *Server
	over    chan struct{} // closed by Close
	done    func()
	serving sync.WaitGroup

	mu    sync.Mutex // protects what follows
	cut   error      // nil: the server can be reached
	conns map[net.Conn]struct{}
}

// Link makes a way to the server.
func (s *Server) Link() *Link {
	return &Link{server: s, over: make(chan struct{}), done: onecore.Begin(), conns: map[net.Conn]struct{}{}}
}

// Close ends the way for good, after its client was disconnected, and waits for what is under
// way.
func (l *Link) Close() {
	close(l.over)
	l.Cut(net.ErrClosed)
	l.serving.Wait()
	l.done()
}

// Client makes a client of the driver, on a way of its own, until the test ends.
func (s *Server) Client(t testing.TB, opts ...func(*options.ClientOptions)) *mongo.Client {
	t.Helper()
	link := s.Link()
	client, err := link.Connect(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Disconnect(context.Background())
		link.Close()
	})
	return client
}

// Connect makes a client of the driver, with what opts do to its options.
func (l *Link) Connect(opts ...func(*options.ClientOptions)) (*mongo.Client, error) {
	all := options.Client().ApplyURI("mongodb://memory:27017/?directConnection=true").SetDialer(l)
	for _, o := range opts {
		o(all)
	}
	return mongo.Connect(all)
}

// Cut breaks all connections of the client, and lets it make no other, until Cut(nil). Commands
// that it has sent may or may not be carried out.
func (l *Link) Cut(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = err
	if err == nil {
		return
	}
	for c := range l.conns {
		_ = c.Close()
		delete(l.conns, c)
	}
}

// DialContext makes a connection, for the driver.
func (l *Link) DialContext(context.Context, string, string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut != nil {
		return nil, fmt.Errorf("memory: %w", l.cut)
	}
	ours, theirs := net.Pipe()
	l.conns[theirs] = struct{}{}
	l.serving.Go(func() {
		l.server.serve(ours, l.over)
		l.mu.Lock()
		delete(l.conns, theirs)
		l.mu.Unlock()
	})
	return theirs, nil
}

// serve answers what comes over a connection until it ends.
func (s *Server) serve(conn net.Conn, over <-chan struct{}) {
	defer conn.Close()
	for {
		raw, err := wire.Read(conn, nil)
		if err != nil {
			return
		}
		message, err := wire.Parse(raw)
		if err != nil {
			return
		}
		time.Sleep(time.Duration(s.slow.Load())) //nolint:forbidigo // virtual time: the server is at work
		reply, err := s.answer(message, over)
		if err != nil {
			return
		}
		body, err := bson.Marshal(reply)
		if err != nil {
			return
		}
		if _, err := conn.Write(message.Answer(1, body).Raw); err != nil {
			return
		}
	}
}

var errNoCommand = errors.New("memory: not a command")

func (s *Server) answer(message *wire.Message, over <-chan struct{}) (bson.D, error) {
	body, err := message.Document()
	if err != nil {
		return nil, err
	}
	if message.Command() == "" {
		return nil, errNoCommand
	}
	c, err := docdb.Parse(body)
	if err != nil {
		return s.stamped(docdb.Failure(2, err.Error())), nil
	}
	if refused := refusal(c); refused != "" {
		return s.stamped(docdb.Failure(2, "memory: "+refused)), nil
	}
	s.mu.Lock()
	w := s.work
	s.mu.Unlock()
	if w.Takes == nil {
		return s.do(c, over), nil
	}
	return s.worked(c, w, over), nil
}

// do runs a command. A getMore that finds nothing waits.
func (s *Server) do(c docdb.Command, over <-chan struct{}) bson.D {
	switch c.Name {
	case "hello", "isMaster", "ismaster":
		return s.stamped(s.hello())
	case "buildInfo":
		return s.stamped(bson.D{{Key: "version", Value: "8.0.0"}, {Key: "ok", Value: 1.0}})
	}
	s.mu.Lock()
	waits := s.db.Awaits(c)
	s.mu.Unlock()
	timer := time.NewTimer(waits)
	defer timer.Stop()
	for {
		reply, news := s.run(c)
		if !docdb.Nothing(reply) || waits == 0 {
			return s.stamped(reply)
		}
		c.Wait = docdb.Waits
		select {
		case <-news:
		case <-timer.C:
			c.Wait = docdb.Over
			reply, _ = s.run(c)
			return s.stamped(reply)
		case <-over:
			return s.stamped(reply)
		}
	}
}

func (s *Server) run(c docdb.Command) (reply bson.D, news <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db.Hear(c.ClusterTime)
	before, ns := s.db.Len(), c.NS()
	reply, _ = s.db.Do(c, s.now(), false)
	if s.db.Len() > before {
		if changed := s.news[ns]; changed != nil {
			close(changed)
			delete(s.news, ns)
		}
	}
	if c.Name == "getMore" && s.news[ns] == nil {
		s.news[ns] = make(chan struct{})
	}
	return reply, s.news[ns]
}

func (s *Server) now() time.Time { return time.Now().Add(s.ahead) }

func (s *Server) hello() bson.D {
	return bson.D{
		{Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true}, {Key: "helloOk", Value: true},
		{Key: "localTime", Value: bson.DateTime(s.now().UnixMilli())},
		{Key: "logicalSessionTimeoutMinutes", Value: int32(30)},
		{Key: "minWireVersion", Value: int32(0)}, {Key: "maxWireVersion", Value: int32(25)},
		{Key: "maxBsonObjectSize", Value: int32(16 << 20)}, {Key: "maxMessageSizeBytes", Value: int32(48_000_000)}, {Key: "maxWriteBatchSize", Value: int32(100_000)},
		{Key: "setName", Value: "memory"}, {Key: "setVersion", Value: int32(1)},
		{Key: "hosts", Value: bson.A{"memory:27017"}}, {Key: "me", Value: "memory:27017"}, {Key: "primary", Value: "memory:27017"},
		{Key: "electionId", Value: bson.ObjectID{0: 0x7f, 1: 0xff, 2: 0xff, 3: 0xff, 11: 1}},
		{Key: "ok", Value: 1.0},
	}
}

// stamped adds the times that every reply of a replica set carries.
func (s *Server) stamped(reply bson.D) bson.D {
	s.mu.Lock()
	defer s.mu.Unlock()
	return docdb.Stamped(reply, s.db.Last(), s.db.ClusterTime())
}
