package mongolock

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/swept"
	"github.com/mongolock/mongolock/store"
)

// leavers is how many calls take places out of lines at the same time.
const leavers = 4

// A placeKeeper takes the places of a client out of lines in which nobody waits with them any
// more. If that fails they are passed, and after a while they are stale.
type placeKeeper struct {
	client *Client

	mu   sync.Mutex // protects what follows
	todo []stood
	busy int                                      // goroutines
	gone swept.Map[store.Place, monotonic.Moment] // places given up, and until when a notice about one is old
}

// A stood is a place that was in use. One that was not seen in its line is worth one call alone: in
// an outage, callers that try again and again leave one each.
type stood struct {
	key   string
	place store.Place
	seen  bool
	until monotonic.Moment // it is stale then
}

// giveUp takes a place out of a line, in the background.
func (k *placeKeeper) giveUp(key string, p store.Place) {
	if k.add(stood{key, p, true, 0}) {
		k.client.background.Go(k.work)
	}
}

// offered gives up a place whose client was told that it is the place's turn, and does not use it.
// Whoever leaves a line tells its first place. If each such notice took that out once more, and told
// the next once more, there would be more notices with every waiter that leaves.
func (k *placeKeeper) offered(key string, p store.Place) {
	k.mu.Lock()
	old := k.client.clock.Now() < k.gone.All[p]
	k.mu.Unlock()
	if !old {
		k.giveUp(key, p)
	}
}

// add makes a place one to be given up. It reports whether the caller has to see to it that work
// runs.
func (k *placeKeeper) add(s stood) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.client.clock.Now()
	s.until = now.Add(store.PlaceFor)
	k.todo = append(k.todo, s)
	k.gone.Put(s.place, s.until, func(_ store.Place, until monotonic.Moment) bool { return until <= now })
	return k.busy < leavers
}

// next returns a place to give up, or that there is none: then the goroutine ends.
func (k *placeKeeper) next() (s stood, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.todo) == 0 {
		k.busy--
		return s, false
	}
	s, k.todo = k.todo[0], k.todo[1:]
	return s, true
}

func (k *placeKeeper) work() {
	k.mu.Lock()
	k.busy++
	k.mu.Unlock()
	pause := backoff.New(50*time.Millisecond, 5*time.Second)
	for s, ok := k.next(); ok; s, ok = k.next() {
		c := k.client
		left := c.leaveLine(s.key, s.place, false) == nil
		now := c.clock.Now()
		k.mu.Lock()
		switch {
		case left:
			k.gone.All[s.place] = now.Add(line.Grace)
		case s.seen && now < s.until:
			k.todo = append(k.todo, s)
		default:
			delete(k.gone.All, s.place)
		}
		k.mu.Unlock()
		if left {
			pause.Reset()
			continue
		}
		if !c.background.Pause(pause.Next()) {
			k.mu.Lock()
			k.busy--
			k.mu.Unlock()
			return
		}
	}
}

// notGranted gives up the place of a claim that was answered when its waiter had left. After a
// fault it may be in line, too: the store may have applied what it did not answer. It runs as
// background work.
func (k *placeKeeper) notGranted(w *waiter, p store.Place, err error) {
	if w.queue == nil || p == "" {
		return
	}
	refused := errors.Is(err, ErrHeld)
	if !refused && (store.IsVerdict(err) || errors.Is(err, ErrClosed) || errors.Is(err, ErrDisconnected)) {
		return
	}
	c := k.client
	c.mu.Lock()
	q := w.queue
	unused := q.head == nil || q.view.Place != p
	q.view.Joined = q.view.Joined || !unused
	c.mu.Unlock()
	if unused && k.add(stood{w.key, p, refused, 0}) {
		k.work()
	}
}

// leaveAll gives up all places, because the client shuts down. c.mu is held.
func (k *placeKeeper) leaveAll() {
	var all []*queue
	for _, q := range k.client.queues.All {
		if q.view.Joined {
			all = append(all, q)
		}
	}
	slices.SortFunc(all, func(a, b *queue) int { return strings.Compare(a.key, b.key) })
	for _, q := range all {
		q.view.Joined = false
		k.giveUp(q.key, q.view.Place)
	}
}
