// Package places takes the places of one process out of lines in which nobody waits with them any
// more. If that fails they are passed, and after a while they are stale.
package places

import (
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/line"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/swept"
	"github.com/mongolock/mongolock/internal/tasks"
	"github.com/mongolock/mongolock/store"
)

// workers is how many calls take places out of lines at the same time. A client that shuts down may
// stand in a thousand lines, and has a few seconds to leave them.
const workers = 16

// A Host is what a Keeper works for.
type Host struct {
	Clock *monotonic.Clock
	Tasks *tasks.Group
	Leave func(key string, p store.Place) error // called without a lock
}

// A Keeper gives up places. It is safe for concurrent use, under any lock of its host.
type Keeper struct {
	host Host

	mu   sync.Mutex // protects what follows; a leaf: never held across a call of the host
	todo []left
	busy int                                      // goroutines that are in Work, or about to be
	gone swept.Map[store.Place, monotonic.Moment] // places given up, and until when a notice about one is old
}

// An Unused place is one that a claim was sent with, and with which nobody waits.
type Unused struct {
	Key   string
	Place store.Place // empty: none
	Seen  bool        // in its line
}

// A left place is given up until it is stale. One that was not seen in its line is worth one call
// alone: in an outage, callers that try again and again leave one each.
type left struct {
	Unused
	until monotonic.Moment
}

// New makes a Keeper.
func New(h Host) *Keeper { return &Keeper{host: h} }

// GiveUp takes a place out of a line, in the background.
func (k *Keeper) GiveUp(key string, p store.Place) {
	if k.Add(Unused{key, p, true}) && !k.host.Tasks.Go(k.Work) {
		k.mu.Lock()
		k.busy--
		k.mu.Unlock()
	}
}

// Offered gives up a place whose process was told that it is the place's turn, and does not use it.
// Whoever leaves a line tells its first place. If each such notice took that out once more, and told
// the next once more, there would be more notices with every waiter that leaves.
func (k *Keeper) Offered(key string, p store.Place) {
	k.mu.Lock()
	old := k.host.Clock.Now() < k.gone.All[p]
	k.mu.Unlock()
	if !old {
		k.GiveUp(key, p)
	}
}

// Add makes a place one to be given up. It reports whether the caller has to see to it that Work
// runs, once: it counts as running already. Without a place Add does nothing.
func (k *Keeper) Add(u Unused) (work bool) {
	if u.Place == "" {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.host.Clock.Now()
	until := now.Add(store.PlaceFor)
	k.todo = append(k.todo, left{u, until})
	k.gone.Put(u.Place, until, func(_ store.Place, until monotonic.Moment) bool { return until <= now })
	if k.busy == workers {
		return false
	}
	k.busy++
	return true
}

// Work gives up places until there are none. Each call follows one of Add.
func (k *Keeper) Work() {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() { k.busy-- }()
	pause := backoff.New(50*time.Millisecond, 5*time.Second)
	for len(k.todo) > 0 {
		p := k.todo[0]
		k.todo = k.todo[1:]
		k.mu.Unlock()
		err := k.host.Leave(p.Key, p.Place)
		now := k.host.Clock.Now()
		k.mu.Lock()
		switch {
		case err == nil:
			k.gone.All[p.Place] = now.Add(line.Grace)
			pause.Reset()
			continue
		case p.Seen && now < p.until:
			k.todo = append(k.todo, p)
		default:
			delete(k.gone.All, p.Place)
		}
		k.mu.Unlock()
		goOn := k.host.Tasks.Pause(pause.Next())
		k.mu.Lock()
		if !goOn {
			return
		}
	}
}
