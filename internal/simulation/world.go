package simulation

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/history"
	"github.com/mongolock/mongolock/store/memstore"
)

// serverEpoch is what the servers' clocks show when a bubble's begins in 2000:
// before 2020 tokens would be negative.
var serverEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A world is one history on its way.
type world struct {
	seed    uint64
	start   time.Time
	weather weather
	mem     *memstore.Store // instead of the cluster

	mu      sync.Mutex // protects what follows, and all of cluster and network
	cluster cluster
	sent    map[string]int    // commands so far, by who sent what
	names   map[string]string // sessions, by order of appearance
	grants  map[string]int    // the calls that leases came of, by ID
	faults  map[string]int
	trouble map[int]span // of each client, the last, with some time to recover
	sends   int
	closed  bool
	stuck   []history.Violation
	log     []line
	history history.History
}

func newWorld(seed uint64) *world {
	w := &world{
		seed: seed, start: time.Now(),
		sent: map[string]int{}, names: map[string]string{}, grants: map[string]int{}, faults: map[string]int{}, trouble: map[int]span{},
	}
	w.weather = w.forecast()
	w.cluster = newCluster(w)
	return w
}

// since is the time since the history began.
func (w *world) since() time.Duration { return time.Since(w.start) }

// A line of the log.
type line struct {
	at   time.Duration
	text string
}

// logf writes a line into the log. With w.mu held.
func (w *world) logf(format string, args ...any) {
	w.log = append(w.log, line{w.since(), fmt.Sprintf(format, args...)})
}

// text is the log. What goroutines did in one instant has no order but that of
// its words.
func (w *world) text() []byte {
	slices.SortStableFunc(w.log, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.text, b.text))
	})
	var b bytes.Buffer
	for _, l := range w.log {
		fmt.Fprintf(&b, "%14.9f %s\n", l.at.Seconds(), l.text)
	}
	return b.Bytes()
}

// fault counts something that was made to go wrong. With w.mu held.
func (w *world) fault(what string) { w.faults[what]++ }

// note adds an event to the history.
func (w *world) note(e history.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(e)
}

func (w *world) noteLocked(e history.Event) {
	if w.closed {
		return
	}
	e.At = w.since()
	w.history.Events = append(w.history.Events, e)
	if e.Kind == history.Granted {
		w.grants[e.ID] = e.Op
	}
	if op, ok := w.grants[e.ID]; ok { // of two claims in one instant either may have drawn its ID first
		e.ID, e.Op = "", op
	}
	w.logf("%s", e)
}

// after runs f with w.mu held, a while from now.
func (w *world) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.closed {
			f()
		}
	})
}

// dice are chance that hangs on the seed and a name, and on nothing else.
type dice struct{ state uint64 }

func (w *world) dice(name string) *dice {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return &dice{state: h.Sum64() ^ w.seed*0x9e3779b97f4a7c15}
}

// next is splitmix64.
func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// n is a number from 0 to most-1.
func (d *dice) n(most int) int { return int(d.next() % uint64(most)) }

// between is a duration, to the nanosecond.
func (d *dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.next()%uint64(most-least+1))
}

// chance is true in so many of a thousand cases.
func (d *dice) chance(permille int) bool { return d.n(1000) < permille }

// oneOf is one of some, each as likely.
func oneOf[T any](d *dice, some ...T) T { return some[d.n(len(some))] }
