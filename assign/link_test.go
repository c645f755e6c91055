package assign_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

var errNet = errors.New("no route to the store")

// A link is one process's connection to the store. Each call takes some time, and while the link is
// down it fails: before or after the store has applied it.
type link struct {
	*lab.Store
	slow time.Duration // the most that a call takes one way

	// Controls set these before the link is used.
	claim func(store.Claim)   // runs before a claim
	seen  func(*store.Status) // changes what a look or a list shows

	mu     sync.Mutex // protects what follows
	random *rand.Rand
	down   bool
}

func newLink(to *memstore.Store, seed uint64) *link {
	l := &link{Store: lab.New(to), random: rand.New(rand.NewPCG(seed, 1)), slow: 3 * time.Millisecond}
	l.All(l.over)
	l.On(lab.Watch, l.over)
	return l
}

// set takes the link down, or up again.
func (l *link) set(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down = down; down {
		l.Cut(errNet)
	}
}

// travel takes the time of one way. It fails if the link is down when it ends.
func (l *link) travel() error {
	l.mu.Lock()
	d := time.Duration(l.random.Int64N(int64(l.slow) + 1))
	l.mu.Unlock()
	time.Sleep(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return errNet
	}
	return nil
}

// over makes a call over the link, there and back.
func (l *link) over(_ context.Context, call *lab.Call) error {
	if err := l.travel(); err != nil {
		return errors.Join(err, store.ErrNotApplied)
	}
	if call.Op == lab.Acquire && l.claim != nil {
		l.claim(call.Claim)
	}
	err := call.Do()
	for i := range call.Statuses {
		if l.seen != nil {
			l.seen(&call.Statuses[i])
		}
	}
	if call.Op == lab.Watch {
		return err
	}
	if lost := l.travel(); lost != nil {
		return lost
	}
	return err
}

// hangs has the calls of some kinds hang until their contexts end; all others go over the link.
func (l *link) hangs(kinds ...lab.Op) {
	l.All(l.over)
	for _, kind := range kinds {
		l.On(kind, lab.Hang)
	}
}
