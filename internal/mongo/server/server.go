// Package server sends commands to a collection of MongoDB: under the library's own concerns, whatever
// the collection has, and in the session of an attempt. It has what is known of the server that keeps
// the collection: its kind (hello), its clock, its elections, whether the collection is sharded, which
// holders of locks are over, and what its errors say about a write. It serves every store on MongoDB,
// and knows nothing of the fields in which a store keeps its holders.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A Server is the server that keeps a collection: its kind, its clock, its elections, and since when
// the holders of its locks have been silent.
type Server struct {
	// Unsharded makes Sure refuse a collection that is sharded by any key.
	Unsharded bool

	Clock *Clock

	coll    *mongo.Collection           // w: 1, reads from the primary
	retries bool                        // the driver gives its writes transaction numbers, where the server takes them
	kind    atomic.Pointer[Kind]        // known once the clock is
	log     atomic.Pointer[slog.Logger] // is told of the server and of clock steps; nil: no logger is

	greeting     Shared
	epochs       epochs
	sights       sights
	shardingSeen atomic.Int64 // the moment of the last answer
}

// newServer makes the Server of a collection, which is under the library's concerns. It sends nothing. now
// is the local clock; nil is the monotonic clock.
func newServer(coll *mongo.Collection, now func() Moment) *Server {
	if now == nil {
		now = Monotonic()
	}
	s := &Server{Clock: NewClock(now), coll: coll, retries: Retries(coll.Database().Client())}
	s.epochs.clock = NewClock(now)
	return s
}

func (s *Server) LogTo(l *slog.Logger) { s.log.Store(l) }

// Retries reports whether the client retries writes, and so numbers them. The driver does not
// make that public. If it cannot be found, the answer is no: clean-ups are then repeated until
// the attempt's expiry, which costs commands and does no harm.
func Retries(c *mongo.Client) bool {
	field := reflect.ValueOf(c).Elem().FieldByName("retryWrites")
	return field.IsValid() && field.Kind() == reflect.Bool && field.Bool()
}

// A Kind is the part of the first hello that does not change.
type Kind struct {
	Router   bool // a mongos: its clock is not the one of the documents
	Set      bool // a member of a replica set, or in front of some
	Sessions bool
	Numbers  bool // writes may carry transaction numbers
}

// KindOf returns what a hello tells of the kind; Numbers takes more than that.
func KindOf(hello bson.Raw) Kind {
	name, _ := hello.Lookup("msg").StringValueOK()
	_, member := hello.Lookup("setName").StringValueOK()
	router := name == "isdbgrid"
	return Kind{Router: router, Set: member || router, Sessions: hello.Lookup("logicalSessionTimeoutMinutes").IsNumber()}
}

// SayHello returns the server's hello, or its isMaster if the server is too old for hello.
func SayHello(ctx context.Context, db *mongo.Database) (hello bson.Raw, old bool, err error) {
	hello, err = db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
	if ClassOf(err) == NoCommand {
		hello, err = db.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Raw()
		return hello, true, err
	}
	return hello, false, err
}

// Kind returns the kind of the server. It is known after the first Read.
func (s *Server) Kind() Kind {
	if k := s.kind.Load(); k != nil {
		return *k
	}
	return Kind{}
}

// ManyClocks reports whether each document may be on a shard with a clock of its own. Then no date
// in a document ends a holder: it is over once it was silent for its TTL.
func (s *Server) ManyClocks() bool { return s.Kind().Router && !s.Unsharded }

func (s *Server) Known() (r Reading, known bool) {
	if s.kind.Load() == nil {
		return r, false
	}
	return s.Clock.Read()
}

// Sure is Read after a new hello, if there may have been an election since the last one.
func (s *Server) Sure(ctx context.Context) error {
	switch kind := s.kind.Load(); {
	case kind == nil:
		return s.greet(ctx)
	case kind.Router:
		if s.Clock.Now().Sub(Moment(s.shardingSeen.Load())) < shardingAged {
			return nil
		}
		return s.checkSharding(ctx)
	case !s.epochs.due():
		return nil
	}
	_, err := s.ask(ctx)
	return err
}

// greet sends the first hello, which all callers that need it at one time share.
func (s *Server) greet(ctx context.Context) error {
	return s.greeting.Ask(ctx, func(ctx context.Context) error {
		if _, known := s.Known(); known {
			return nil
		}
		_, err := s.ask(ctx)
		return err
	})
}

// ClockBasis returns the epoch for a write or a judgement. If none is known for certain, the clock
// is that of the newest sample.
func (s *Server) ClockBasis() ClockBasis {
	e := &s.epochs
	e.mu.Lock()
	defer e.mu.Unlock()
	last, _ := s.Clock.Read()
	if e.sure(e.clock.Now()) {
		r, _ := e.clock.Read()
		return ClockBasis{r, e.id, true, last.Earliest}
	}
	if e.own.IsZero() {
		e.own = bson.NewObjectID()
	}
	return ClockBasis{last, e.own, false, last.Earliest}
}

// Plausible reports whether a server time, drawn for a command that was sent at sent and is
// answered by got, may be of the clock that the command went by. If not, the machine slept
// unnoticed or another one answered, and no trust may rest on what was written by that clock.
func (s *Server) Plausible(by ClockBasis, server time.Time, sent, got Moment) bool {
	most := stepSeen
	if s.Kind().Router {
		most = shardsApart
	}
	if by.Allows(server, sent, got, most) {
		return true
	}
	s.epochs.distrust()
	return false
}

// Refresh asks for the election again if the answer at hand is old, or may be wrong. A fault
// changes nothing.
func (s *Server) Refresh(ctx context.Context) {
	if !s.Kind().Router && s.epochs.aged() {
		_, _ = s.ask(ctx)
	}
}

// Read returns the server's clock as of now; it sends a hello if the clock is not known yet.
func (s *Server) Read(ctx context.Context) (Reading, error) {
	if r, known := s.Known(); known {
		return r, nil
	}
	if err := s.greet(ctx); err != nil {
		return Reading{}, err
	}
	return s.Now(), nil
}

// ReadFresh is Read, with a new sample if the present one is too old to judge whether a holder
// has run out.
func (s *Server) ReadFresh(ctx context.Context) error {
	r, err := s.Read(ctx)
	if err != nil || r.Fresh || s.Kind().Router {
		return err
	}
	_, err = s.ask(ctx)
	return err
}

func (s *Server) Now() Reading {
	r, _ := s.Clock.Read()
	return r
}

// Present returns the latest server time that has surely come.
func (s *Server) Present() time.Time {
	now, known := s.Clock.Read()
	switch {
	case !known:
		return time.Time{}
	case now.Earliest.IsZero(): // through a mongos, before any write: for people, not for judging
		return Floor(now.Latest)
	}
	return now.Earliest
}

// Timed takes the time in an after-image as a sample, which the command drew that was sent at sent
// and is answered now. The zero time is none.
func (s *Server) Timed(at time.Time, sent Moment) {
	if at.IsZero() {
		return
	}
	if !s.Kind().Router && s.Clock.Jumped(at, sent, stepSeen) {
		s.epochs.suspect(true)
	}
	s.Clock.Observe(at, sent, true)
}

// Troubled records that a command failed, or was slow: there may have been an election.
func (s *Server) Troubled() { s.epochs.suspect(false) }

// Hello asks the server for its kind and its time, which it takes as a sample. It returns when
// it was sent.
func (s *Server) Hello(ctx context.Context) (server time.Time, sent Moment, err error) {
	a, err := s.ask(ctx)
	return a.server, a.sent, err
}

// An answer is what one hello told.
type answer struct {
	server time.Time
	sent   Moment

	epoch            bson.ObjectID
	elections, known bool
	sure             bool // the epoch goes on, and its dates can be trusted
}

func (s *Server) ask(ctx context.Context) (a answer, err error) {
	a.sent = s.Clock.Now()
	reply, _, err := SayHello(mongo.NewSessionContext(ctx, nil), s.coll.Database())
	if err != nil {
		return answer{}, err
	}
	ms, ok := reply.Lookup("localTime").DateTimeOK()
	if !ok {
		return answer{}, errors.New("the server does not tell its time")
	}
	a.server = time.UnixMilli(ms).UTC()
	if deposed(reply) {
		return answer{}, errors.New("the server that answers is no primary any more")
	}
	kind := KindOf(reply)
	if kind.Router {
		s.Clock.Observe(a.server, a.sent, false)
	} else {
		jumped := s.Clock.Jumped(a.server, a.sent, stepSeen)
		s.Clock.Observe(a.server, a.sent, true)
		a.epoch, a.elections, a.known = epochOf(reply)
		var stepped bool
		a.sure, stepped = s.epochs.heard(a, jumped)
		if to := s.log.Load(); stepped && to != nil { // or this machine slept unnoticed
			to.Warn("mongolock: the database's clock was stepped: for ten minutes no lease is judged by it", "collection", s.coll.Name())
		}
	}
	if s.kind.Load() != nil {
		return a, nil
	}
	return a, s.meet(ctx, kind)
}

// deposed reports whether the answer comes from a member that stepped down: its clock is not
// the primary's.
func deposed(hello bson.Raw) bool {
	for _, field := range []string{"isWritablePrimary", "ismaster"} {
		if is, ok := hello.Lookup(field).BooleanOK(); ok {
			return !is
		}
	}
	return false
}

// meet records the server's kind from the first hello, or refuses a server that cannot
// hold locks. It logs if the server is of a kind on which faults cost more.
func (s *Server) meet(ctx context.Context, k Kind) error {
	k.Numbers = k.Sessions && s.retries && k.Set
	if k.Router {
		if err := s.checkSharding(ctx); err != nil {
			return err
		}
	}
	if to := s.log.Load(); s.kind.CompareAndSwap(nil, &k) && to != nil && !k.Numbers {
		to.Info("mongolock: writes have no transaction numbers here: after a fault a key may stay taken for a TTL",
			"collection", s.coll.Name(), "standalone", !k.Set, "sessions", k.Sessions, "retryWrites", s.retries)
	}
	return nil
}

// A Validity is what a claim or a renewal writes: when it begins and ends, how long that is meant
// to be, its beat, the clock and epoch that it goes by, and the revision that the document then
// has, if documents have one.
type Validity struct {
	Since, Until time.Time
	TTL          time.Duration
	Beat         int64
	By           ClockBasis
	Rev          int64
}

// ErrNoTrace answers a claim that was applied according to the server, whose reply does not
// show it.
var ErrNoTrace = errors.New("mongolock: the server's reply to a claim does not contain the claim")

// Validity returns what is written now for a holder that is to last ttl.
func (s *Server) Validity(ttl time.Duration) Validity {
	by := s.ClockBasis()
	t := Validity{TTL: ttl, Beat: beats.Add(1), By: by}
	t.Since, t.Until = by.Expiry(ttl)
	return t
}

// Left returns how long after sent a holder that was written with this validity may be trusted,
// by a server time that was drawn after it was sent. If that time is not of the validity's clock,
// the dates in the document mean nothing: they have to be written again.
func (s *Server) Left(t Validity, sent, drawn Moment, server time.Time) time.Duration {
	if !s.Plausible(t.By, server, drawn, s.Clock.Now()) {
		return 0
	}
	return Left(t.TTL, sent, drawn, t.Until, server)
}

// shardingAged is how long the store believes the answer to whether a collection is sharded,
// and by which key. It may be sharded while the program runs.
const shardingAged = 5 * time.Minute

// checkSharding returns an error for a collection that is sharded by anything but _id. In such
// a collection two shards could each have a document of one key, because an _id is unique only
// within a shard. If it is sharded by _id, every document is on one shard, and only that shard
// judges it.
func (s *Server) checkSharding(ctx context.Context) error {
	ctx = mongo.NewSessionContext(ctx, nil)
	is, err := s.sharded(ctx)
	if err != nil {
		return err
	}
	if is {
		if err := s.checkShardKey(ctx); err != nil {
			return err
		}
	}
	s.shardingSeen.Store(int64(s.Clock.Now()))
	return nil
}

// sharded reports whether the collection is sharded. collStats tells; under a strict API the
// number of shards that answer $collStats does. Without the right to ask it is assumed not to
// be.
func (s *Server) sharded(ctx context.Context) (bool, error) {
	stats, err := s.coll.Database().RunCommand(ctx, bson.D{{Key: "collStats", Value: s.coll.Name()}}).Raw()
	if err == nil {
		is, _ := stats.Lookup("sharded").BooleanOK()
		return is, nil
	}
	cursor, err := s.coll.Aggregate(ctx, mongo.Pipeline{{{Key: "$collStats", Value: bson.D{{Key: "count", Value: bson.D{}}}}}})
	if err != nil {
		if c := ClassOf(err); c == Refused || c == NoCommand {
			return false, nil // the collection does not exist yet, or may not be looked at
		}
		return false, err
	}
	defer cursor.Close(ctx)
	shards := 0
	for cursor.Next(ctx) {
		shards++
	}
	return shards > 1, cursor.Err()
}

func (s *Server) checkShardKey(ctx context.Context) error {
	name := s.coll.Database().Name() + "." + s.coll.Name()
	if s.Unsharded {
		return fmt.Errorf("the collection %s is sharded: these locks need one that is not", name)
	}
	config := s.coll.Database().Client().Database("config").Collection("collections")
	found, err := config.FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil // one document by itself, on several shards for $collStats
	case err != nil && ClassOf(err) == Refused:
		return fmt.Errorf("the collection %s is sharded, and this user may not see by which key: "+
			"locks need one sharded by _id; grant the right to find in config.collections (%w)", name, err)
	case err != nil:
		return err
	}
	key, _ := found.Lookup("key").DocumentOK()
	elements, err := key.Elements()
	if err == nil && len(elements) == 1 && elements[0].Key() == "_id" {
		return nil
	}
	return fmt.Errorf("the collection %s is sharded by %v: locks need one that is sharded by _id, or not at all", name, key)
}

// A Shared is a question that all callers share which ask it at one time. Its zero value is
// ready for use.
type Shared struct {
	mu    sync.Mutex // protects asked
	asked *question
}

type question struct {
	answered chan struct{} // closed when err is set
	err      error
	givenUp  bool // the caller that asked gave up: there is no answer for the others
}

// Ask calls ask, unless another caller's ask is under way: then it waits for the answer to
// that. When ctx ends first it calls ask all the same, which then says at once what it was
// waiting for, such as a server.
func (s *Shared) Ask(ctx context.Context, ask func(context.Context) error) error {
	for {
		q, mine := s.join()
		if mine {
			q.err = ask(ctx)
			q.givenUp = q.err != nil && ctx.Err() != nil
			s.mu.Lock()
			s.asked = nil
			s.mu.Unlock()
			close(q.answered)
			return q.err
		}
		select {
		case <-q.answered:
			if !q.givenUp {
				return q.err
			}
		case <-ctx.Done():
			return ask(ctx)
		}
	}
}

func (s *Shared) join() (q *question, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		s.asked, mine = &question{answered: make(chan struct{})}, true
	}
	return s.asked, mine
}
