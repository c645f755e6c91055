package doclock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

const (
	pollLeast = 50 * time.Millisecond
	pollMost  = time.Second
	feedIdle  = 30 * time.Second // a feed that nobody needs any more is closed after so long

	topic     = "documents" // of the wake-ups for those who wait for work
	kindReady = "ready"
)

// Announce wakes those who wait for work in coll, in all processes, after an insert
// there (and after the commit, if that was in a transaction). It is a hint: where
// it is left out, or fails, they find out by themselves within a second. Nobody
// waiting, it only looks whether somebody might.
func Announce(ctx context.Context, coll *mongo.Collection) error {
	if coll == nil {
		return errors.New("doclock: Announce: the collection is nil")
	}
	feed, err := mongolock.FeedOn(coll)
	if err != nil {
		return err
	}
	return announce(ctx, feed, coll.Name())
}

// Announce is the function of that name for a process that has Locks, and one
// command instead of two.
func (l *Locks[T]) Announce(ctx context.Context) error {
	return announce(ctx, l.store.Feed, l.store.base.Soft.Name())
}

func announce(ctx context.Context, f store.Feed, name string) error {
	err := f.Notify(ctx, store.Notice{Topic: topic, Key: name, Kind: kindReady})
	if err != nil && !errors.Is(err, errors.ErrUnsupported) { // then nobody can listen
		return fmt.Errorf("doclock: announce: %w", err)
	}
	return nil
}

// A line is those of a process who wait for the same work. One of them looks for
// all, which the others are free to take over when it leaves.
type line struct {
	mu       sync.Mutex // protects what follows
	interval time.Duration
	news     chan struct{} // closed when work has come
	waiting  int

	turn chan struct{} // of capacity 1: full while somebody looks
	kick chan struct{} // of capacity 1: look now
}

func newLine() line {
	return line{interval: pollLeast, news: make(chan struct{}), turn: make(chan struct{}, 1), kick: make(chan struct{}, 1)}
}

func (l *line) enter() { l.count(1) }
func (l *line) leave() { l.count(-1) }

func (l *line) count(by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting += by
}

func (l *line) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting > 0
}

// come tells all who wait that there is work.
func (l *line) come() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.news)
	l.news = make(chan struct{})
	l.interval = pollLeast
}

// poke makes whoever looks do it now.
func (l *line) poke() {
	l.mu.Lock()
	l.interval = pollLeast
	l.mu.Unlock()
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// pause is how long to sleep before the next look.
func (l *line) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.interval
	l.interval = min(2*l.interval, pollMost)
	return d - d/5 + rand.N(2*d/5)
}

// shapes are the pools of the claims that were made lately, and the feed that wakes
// those who wait.
type shapes struct {
	store  *docStore
	base   context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu        sync.Mutex // protects what follows
	pools     map[string]*pool
	closed    bool
	listening bool
	deaf      bool // the store has no feed
	needed    time.Time
}

func (s *shapes) begin(store *docStore) {
	s.store, s.pools = store, map[string]*pool{}
	s.base, s.cancel = context.WithCancel(context.Background())
}

func (s *shapes) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
}

// pool is that of a filter and sort; a new one if need be.
func (s *shapes) pool(filter, sort bson.Raw) (*pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("doclock: claim: %w", mongolock.ErrClosed)
	}
	key := string(filter) + string(sort)
	p := s.pools[key]
	if p == nil {
		s.evict()
		p = newPool(s.store, slices.Clone(filter), slices.Clone(sort))
		s.pools[key] = p
	}
	p.used = time.Now()
	return p, nil
}

// evict makes room. With s.mu held.
func (s *shapes) evict() {
	if len(s.pools) < maxShapes {
		return
	}
	oldest := ""
	for key, p := range s.pools {
		if !p.line.waits() && (oldest == "" || p.used.Before(s.pools[oldest].used)) {
			oldest = key
		}
	}
	delete(s.pools, oldest)
}

// sleep waits for work, or for its turn to look whether there is any.
func (s *shapes) sleep(ctx context.Context, p *pool) error {
	p.line.mu.Lock()
	news := p.line.news
	p.line.mu.Unlock()
	s.listen()
	select {
	case <-news:
		return nil
	case p.line.turn <- struct{}{}:
		defer func() { <-p.line.turn }()
	case <-ctx.Done():
		return fmt.Errorf("doclock: claim: %w: %w", ErrNoWork, context.Cause(ctx))
	case <-s.base.Done():
		return fmt.Errorf("doclock: claim: %w", mongolock.ErrClosed)
	}
	timer := time.NewTimer(p.line.pause())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.line.kick:
	case <-news:
	case <-ctx.Done():
		return fmt.Errorf("doclock: claim: %w: %w", ErrNoWork, context.Cause(ctx))
	case <-s.base.Done():
		return fmt.Errorf("doclock: claim: %w", mongolock.ErrClosed)
	}
	return nil
}

// listen sees to it that the feed is read while somebody waits.
func (s *shapes) listen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needed = time.Now()
	if s.listening || s.deaf || s.closed {
		return
	}
	s.listening = true
	s.tasks.Go(s.follow)
}

// follow reads the feed until nobody has waited for a while.
func (s *shapes) follow() {
	pause := 100 * time.Millisecond
	for {
		ctx, cancel := context.WithCancel(s.base)
		idle := time.AfterFunc(feedIdle, cancel)
		live, err := s.hear(ctx, idle)
		idle.Stop()
		cancel()
		if live {
			pause = 100 * time.Millisecond
		}
		s.mu.Lock()
		unneeded := time.Since(s.needed) > feedIdle
		s.deaf = errors.Is(err, errors.ErrUnsupported)
		if s.closed || s.deaf || unneeded {
			s.listening = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		timer := time.NewTimer(pause)
		pause = min(2*pause, 5*time.Second)
		select {
		case <-timer.C:
		case <-s.base.Done():
			timer.Stop()
		}
	}
}

func (s *shapes) hear(ctx context.Context, idle *time.Timer) (live bool, err error) {
	for n, err := range s.store.Watch(ctx) {
		if err != nil {
			return live, err
		}
		live = true
		if n == (store.Notice{}) || n.Topic == topic {
			s.pokeAll()
		}
		s.mu.Lock()
		if left := feedIdle - time.Since(s.needed); left > 0 {
			idle.Reset(left + time.Second)
		}
		s.mu.Unlock()
	}
	return live, nil
}

func (s *shapes) pokeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pools {
		if p.line.waits() {
			p.line.poke()
		}
	}
}
