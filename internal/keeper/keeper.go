// Package keeper renews what a client has in a store: its leases, and the session that may
// keep them. It plans the renewals, sends many in one call, and repeats those that fail.
// What a renewal asks and what its answer means is the item's own business.
package keeper

import (
	"container/heap"
	"math/bits"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/tasks"
	"github.com/mongolock/mongolock/store"
)

// An Item is something that is renewed. It embeds a Slot.
type Item interface {
	slot() *Slot

	// Begin makes the caller the one to renew the item. Otherwise it returns a channel that
	// closes when the renewal under way is over, or nil if the item has ended.
	Begin() (mine bool, other <-chan struct{})
	// Patience is how long the store may take to answer a renewal that is sent now.
	Patience(now monotonic.Moment) time.Duration
	// RetryPause is the time between two renewals that fail at once.
	RetryPause(now monotonic.Moment) time.Duration
	// Answer takes in the answer to a renewal that was sent at sent and came now. It ends what
	// Begin began.
	Answer(answer store.Renewed, sent, now monotonic.Moment) Next
}

// A Next is what follows the answer to a renewal.
type Next struct {
	Due   monotonic.Moment // the next renewal is due then; zero: none is planned
	Again bool             // the renewal failed, and is repeated
	Tell  func()           // tells others of the answer, and may take its time; nil: there is nothing to tell
}

// A Slot is the place of an item in the keeper's schedule. The fields that can be set are
// constant.
type Slot struct {
	TTL   time.Duration
	First bool // its renewal is a call of its own, before those of other items

	due   monotonic.Moment
	at    int    // 1 + the index in the schedule; 0: it is not in it
	gone  bool   // it was removed
	asked int    // calls of Renew that are not answered: the keeper leaves a retry to them
	retry *retry // the retry in charge; an older one leaves the item alone
}

func (s *Slot) slot() *Slot { return s }

// A Host is what a keeper works for. Nothing of it is called while the keeper is locked.
type Host struct {
	Clock *monotonic.Clock
	Tasks *tasks.Group // the renewals are tasks of it
	// Send sends one renewal for all of batch, and returns the answers within limit. told is
	// called after the items have taken these in.
	Send func(batch []Item, sent monotonic.Moment, limit time.Duration) (answers []store.Renewed, told func())
}

const (
	// MaxCall is how long one call may take.
	MaxCall = 10 * time.Second

	firstBulk = 128 // items that are renewed together while the store's pace is unknown
	leastBulk = 32
	mostBulk  = 1000
)

// A Keeper renews items. Items whose TTLs lie within a factor of two form a group with its own
// schedule and timer: a slow call for items with long TTLs must not delay those with short
// ones. Between renewals there is no goroutine.
type Keeper struct {
	host Host

	mu      sync.Mutex // protects what follows and every slot
	groups  [64]*group // by groupOf
	pace    pace
	stopped bool
	ahead   *ahead // the renewal that others wait for; nil: there is none
}

// New makes a keeper.
func New(host Host) *Keeper { return &Keeper{host: host} }

// A group is protected by the keeper's mu.
type group struct {
	keeper *Keeper
	least  time.Duration // the shortest TTL that belongs to the group; constant
	first  bool          // constant
	due    schedule
	timer  *time.Timer
	armed  monotonic.Moment // when the timer fires; zero if it does not
	busy   bool             // a round is under way, and arms the timer when it ends
}

// groupOf returns the index of an item's group; it is 55 for a TTL of a year. Those that are
// renewed first have a group of their own.
func groupOf(s *Slot) int {
	if s.First {
		return 0
	}
	return bits.Len64(uint64(s.TTL))
}

// Add plans a renewal of the item at due, unless one is planned.
func (k *Keeper) Add(item Item, due monotonic.Moment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	item.slot().gone = false
	k.push(item, due)
}

// Plan moves the next renewal of the item to due, unless it was removed.
func (k *Keeper) Plan(item Item, due monotonic.Moment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pull(item)
	if !item.slot().gone {
		k.push(item, due)
	}
}

// Remove takes the item out of the schedule, until it is added again. The timer stays set and
// may find nothing due.
func (k *Keeper) Remove(item Item) {
	k.mu.Lock()
	defer k.mu.Unlock()
	item.slot().gone = true
	k.pull(item)
}

// Again undoes Remove. With planned set, the item is due when it was before.
func (k *Keeper) Again(item Item, planned bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := item.slot()
	s.gone = false
	if planned {
		k.push(item, s.due)
	}
}

// push and pull are called with the keeper locked, as are the methods of a group but round.
func (k *Keeper) push(item Item, due monotonic.Moment) {
	s := item.slot()
	if k.stopped || s.at != 0 {
		return
	}
	n := groupOf(s)
	g := k.groups[n]
	if g == nil {
		g = &group{keeper: k, least: 1 << (bits.Len64(uint64(s.TTL)) - 1), first: s.First}
		k.groups[n] = g
	}
	s.due = due
	heap.Push(&g.due, item)
	g.arm()
}

func (k *Keeper) pull(item Item) {
	if s := item.slot(); s.at != 0 {
		heap.Remove(&k.groups[groupOf(s)].due, s.at-1)
	}
}

// Stop ends all timers for good.
func (k *Keeper) Stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	for _, g := range k.groups {
		if g != nil && g.timer != nil {
			g.timer.Stop()
		}
	}
}

// Rearm sets all timers again, by the clock's present reading.
func (k *Keeper) Rearm() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range k.groups {
		if g != nil {
			g.armed = 0
			g.arm()
		}
	}
}

// arm sets the timer to the first renewal due, or leaves it if it fires sooner.
func (g *group) arm() {
	if len(g.due) == 0 || g.keeper.stopped || g.busy {
		return
	}
	first := g.due[0].slot().due
	if g.armed != 0 && first >= g.armed {
		return
	}
	g.armed = first
	left := g.keeper.host.Clock.Until(first)
	if g.timer == nil {
		g.timer = time.AfterFunc(left, g.round)
	} else {
		g.timer.Reset(left)
	}
}

// round renews all items that are due within a sixth of the TTL, so that items which were
// granted at about the same time are renewed together. Each bulk is sent after the last one was
// answered or given up: so a slow server does not spend its time on renewals that are no longer
// waited for.
func (g *group) round() {
	k := g.keeper
	if !k.host.Tasks.Begin() {
		return
	}
	defer k.host.Tasks.Done()
	now := k.host.Clock.Now()
	soon, bound := now.Add(g.least/6), g.least/10
	for due := now; ; due = soon {
		if !g.first {
			k.Yield()
		}
		batch, more := g.take(due, soon, bound/4)
		if !more {
			k.renew(batch)
			return
		}
		answered := make(chan struct{})
		if !k.host.Tasks.Go(func() {
			_, tell := k.send(batch, 0)
			close(answered)
			tell()
		}) {
			k.renew(batch)
			continue
		}
		timer := time.NewTimer(bound)
		select {
		case <-answered:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take removes from the schedule the items that one bulk renews, and begins their renewals. It
// reports whether there are more.
func (g *group) take(due, soon monotonic.Moment, in time.Duration) (batch []Item, more bool) {
	g.keeper.mu.Lock()
	batch, more = g.next(due, soon, in)
	g.keeper.mu.Unlock()
	return begun(batch), more
}

// begun returns those of batch whose renewal the caller is to make. The others have ended, or
// another renewal is under way and will plan the next one.
func begun(batch []Item) []Item {
	mine := batch[:0]
	for _, item := range batch {
		if is, _ := item.Begin(); is {
			mine = append(mine, item)
		}
	}
	return mine
}

// next returns those due soon if the first is due, and as many as the store is likely to answer
// in time.
func (g *group) next(due, soon monotonic.Moment, in time.Duration) (batch []Item, more bool) {
	g.armed = 0
	if len(g.due) > 0 && g.due[0].slot().due <= due {
		size := g.keeper.pace.bulk(in)
		if g.first {
			size = 1
		}
		for len(g.due) > 0 && g.due[0].slot().due <= soon && len(batch) < size {
			batch = append(batch, heap.Pop(&g.due).(Item))
		}
		more = len(g.due) > 0 && g.due[0].slot().due <= soon
	}
	g.busy = more
	g.arm()
	return batch, more
}

// A pace is the time that the store has lately taken for each item of a bulk. If the store
// does not answer a bulk in time, its items lose an attempt, and the store did that work for
// nothing.
type pace struct{ each time.Duration }

// bulk returns how many items are likely to be renewed in that time.
func (p pace) bulk(in time.Duration) int {
	if p.each == 0 {
		return firstBulk
	}
	return min(max(int(in/p.each), leastBulk), mostBulk)
}

// answered records how long a bulk took, or after how long it was given up.
func (p *pace) answered(items int, took time.Duration) {
	if items < leastBulk {
		return // mostly the round trip
	}
	each := max(took/time.Duration(items), 1)
	if p.each == 0 {
		p.each = each
	}
	p.each = (p.each + each) / 2
}

// A schedule is a heap of items, ordered by when they are due.
type schedule []Item

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].slot().due < s[j].slot().due }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].slot().at, s[j].slot().at = i+1, j+1
}

func (s *schedule) Push(x any) {
	item := x.(Item)
	item.slot().at = len(*s) + 1
	*s = append(*s, item)
}

func (s *schedule) Pop() any {
	last := len(*s) - 1
	item := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	item.slot().at = 0
	return item
}
