package specpath

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

// The times of a walk. A place counts for 90 s (store.PlaceFor), that of a writer among sharers for
// 30 s, so a tick is longer than that, and a walk on a server lets time pass before that is over.
const (
	Tick    = 10 * time.Minute
	Slack   = 5 * time.Millisecond // how late a store may free a key: a tick is as much longer
	hurry   = 12 * time.Second
	longest = 600 // steps of one walk on one key
	vain    = 20  // walks in a row that found nothing new, before the rest is given up
	most    = 3   // failures after which a walk ends
)

// A Subject is a store to ask.
type Subject interface {
	// Store returns the store for the next call.
	Store() store.Store
	// Tick lets a Tick pass for a key, and a little more.
	Tick(ctx context.Context, key string) error
	// Sweep removes the record of a key, as the TTL index does.
	Sweep(ctx context.Context, key string) error
}

// A Report says how far the walks came.
type Report struct {
	Graph    *Graph
	Calls    int // of the graph's, made; or of a state to which no answer of the store leads
	Edges    int // of the graph's, taken
	Steps    int // in all
	Walks    int
	Took     time.Duration
	Failures []string
}

func (r *Report) String() string {
	return fmt.Sprintf("%s: %d of %d calls in %d states, %d of %d edges, in %d steps of %d walks, %v",
		r.Graph.Name, r.Calls, r.Graph.Calls, len(r.Graph.States), r.Edges, r.Graph.Edges, r.Steps, r.Walks, r.Took.Round(10*time.Millisecond))
}

// Walk makes every call in every state of the graph, on as many keys at a time as there are
// subjects. It ends early after some failures.
func Walk(ctx context.Context, g *Graph, subjects ...Subject) *Report {
	r := &Report{Graph: g}
	begun := time.Now()
	var (
		mu   sync.Mutex // protects r and the marks in the graph
		all  sync.WaitGroup
		idle int // walks without anything new, in a row
		took = func(o *outcome) bool {
			mu.Lock()
			defer mu.Unlock()
			before := o.seen
			o.seen = true
			return !before
		}
		next = func(at *State, steps int) *call {
			mu.Lock()
			defer mu.Unlock()
			if steps >= longest || len(r.Failures) >= most || ctx.Err() != nil {
				return nil
			}
			c := g.next(at)
			if c != nil {
				c.asked = true
			}
			return c
		}
	)
	for _, s := range subjects {
		all.Go(func() {
			for {
				w := &walker{ctx: ctx, subject: s, key: "spec-" + rand.Text(), at: g.States[0], ttl: time.Duration(g.ttl) * Tick, ids: make([]store.Ref, len(g.States[0].Holders)), places: map[int]store.Place{}}
				err := w.walk(next, took)
				mu.Lock()
				r.Steps += w.steps
				r.Walks++
				if err != nil {
					r.Failures = append(r.Failures, fmt.Sprintf("%v\nafter\n%s", err, strings.Join(w.log[max(0, len(w.log)-15):], "\n")))
				}
				if idle++; w.news {
					idle = 0
				}
				over := idle > vain || len(r.Failures) >= most || ctx.Err() != nil || g.next(g.States[0]) == nil
				mu.Unlock()
				if over {
					return
				}
			}
		})
	}
	all.Wait()
	if idle > vain {
		r.Failures = append(r.Failures, "the last walks found nothing new, and calls are left")
	}
	r.Took = time.Since(begun)
	within := g.within()
	for _, s := range g.States {
		for _, c := range s.calls {
			made := false
			for _, o := range c.outcomes {
				if o.seen {
					made = true
					r.Edges++
				}
				o.seen = false
			}
			if made || !within[s] {
				r.Calls++
			}
			c.asked = false
		}
	}
	return r
}

// A walker makes calls on one key.
type walker struct {
	ctx     context.Context
	subject Subject
	key     string
	ttl     time.Duration
	at      *State
	ids     []store.Ref         // the acquisition that each id of the specification stands for
	places  map[int]store.Place // and each place
	status  store.Status
	told    *store.Status // what the answer of a call shows of the key, if it does
	steps   int
	token   int64     // the greatest token
	writers int64     // the greatest token of an exclusive grant
	since   time.Time // the last tick
	log     []string
	news    bool // it took an edge that none took before
}

func (w *walker) walk(next func(*State, int) *call, took func(*outcome) bool) error {
	w.since = time.Now()
	if _, err := w.matching(&call{outcomes: []*outcome{{then: w.at}}}, nil); err != nil {
		return err
	}
	for {
		c := w.at.tick()
		if !w.at.waits() || time.Since(w.since) < hurry { // else the places would get stale by themselves
			c = next(w.at, w.steps)
		}
		if c == nil {
			return nil
		}
		w.steps++
		w.told = nil
		says, err := w.make(c)
		w.log = append(w.log, fmt.Sprintf("  %s: %v, from %s", c, says, w.at.name))
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		o, err := w.matching(c, says)
		if err != nil {
			return fmt.Errorf("%s in %s: %w", c, w.at.name, err)
		}
		w.news = took(o) || w.news
		w.at = o.then
	}
}

// matching is the outcome of a call that its answer, and a look at the key, show.
func (w *walker) matching(c *call, says []term) (*outcome, error) {
	var err error
	if w.status, err = w.look(); err != nil {
		return nil, err
	}
	var wrong []string
	for _, o := range c.outcomes {
		if c.name != "" && fmt.Sprint(says) != fmt.Sprint(o.says) {
			wrong = append(wrong, fmt.Sprintf("answered %v, not %v", says, o.says))
			continue
		}
		if what := w.differs(w.status, o.then); what != "" {
			wrong = append(wrong, what)
			continue
		}
		if w.told != nil {
			if what := w.differs(*w.told, o.then); what != "" {
				wrong = append(wrong, "the answer shows: "+what)
				continue
			}
		}
		return o, nil
	}
	return nil, fmt.Errorf("no edge of the specification: %s; the key shows %s", strings.Join(wrong, "; or "), shown(w.status))
}

// look reads the key, now and then with a list.
func (w *walker) look() (store.Status, error) {
	if w.steps%4 == 3 {
		for s, err := range w.subject.Store().List(w.ctx, w.key) {
			return s, err
		}
	}
	all, err := w.subject.Store().Look(w.ctx, []string{w.key})
	if err != nil || len(all) != 1 {
		return store.Status{}, fmt.Errorf("a look: %d answers, %w", len(all), err)
	}
	return all[0], nil
}
