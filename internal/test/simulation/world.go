package simulation

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/store/memstore"
)

// serverEpoch is what the servers' clocks show when the bubble's clock shows its beginning
// in 2000. Before 2020 tokens would be negative.
var serverEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A world is one simulated run: its clients, its servers, and the history so far.
type world struct {
	seed  uint64
	start time.Time
	plan  faultPlan
	mem   *memstore.Store // instead of the cluster

	mu      sync.Mutex               // protects what follows, and all that cluster and network do
	cluster *cluster                 // all servers, or the first shard
	shards  []*cluster               // one, or two behind routers
	routers map[int]*member          // by client
	owner   map[string]int           // which shard has a key
	moving  map[string]time.Duration // until when a key is on the move at least
	sent    map[string]int           // how many commands of a kind a sender has sent
	names   map[string]string        // of sessions, by ID; see session
	began   map[string]time.Duration // when a statement was first sent, by session and number
	refused map[string]time.Duration // when a claim of one of several keys was refused quickly, likewise
	grants  map[string]int           // the call that a lease came of, by ID
	allows  map[int]int              // how many permits a call allows
	faults  map[string]int
	trouble map[int]span // the last of each client, with some time to recover
	sends   int
	closed  bool
	moved   time.Duration // when the first clock was stepped or the first primary failed
	stuck   []history.Violation
	started []*process // in the stead of those that were killed
	log     []line

	unfenced bool // see Settings
	several  bool // likewise

	atOnce   bool                   // likewise
	together map[int]map[string]int // of a call for several keys: that of each key, by the first
	history  history.History

	recording Recording
	latest    time.Time // what shown answered last, and when
	latestAt  time.Duration
}

func newWorld(seed uint64, s Settings) *world {
	w := &world{
		seed: seed, start: time.Now(),
		sent: map[string]int{}, names: map[string]string{}, together: map[int]map[string]int{}, began: map[string]time.Duration{}, refused: map[string]time.Duration{}, routers: map[int]*member{}, owner: map[string]int{}, moving: map[string]time.Duration{}, grants: map[string]int{}, allows: map[int]int{}, faults: map[string]int{}, trouble: map[int]span{},
	}
	w.plan, w.moved = w.makePlan(s), neverEnds
	w.shards = []*cluster{newCluster(w, 0)}
	if w.plan.servers == routers {
		w.shards = append(w.shards, newCluster(w, 1))
	}
	w.cluster = w.shards[0]
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

// text returns the log. Lines of one instant are sorted by their text, as the order in which
// the goroutines ran is left open.
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

// fault counts an injected fault. With w.mu held.
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
	w.record(Step{Kind: Noted, Event: e})
	switch {
	case e.Kind == history.Granted:
		w.grants[e.ID] = e.Op
	case e.Kind == history.Called && e.Limit > 0:
		w.allows[e.Op] = e.Limit
	}
	if op, ok := w.grants[e.ID]; ok { // two claims of one instant may have drawn their IDs in either order
		e.ID, e.Op = "", op
	}
	w.logf("%s", e)
}

// after runs f once d has passed, with w.mu held.
func (w *world) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.closed {
			f()
		}
	})
}
