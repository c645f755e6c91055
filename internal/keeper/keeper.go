// Package keeper renews the leases that a client has in a store. It plans the renewals, sends many
// in one call, and repeats those that fail. What a renewal asks and what its answer means is the
// item's own business.
package keeper

import (
	"cmp"
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
	// Limits are how long the store may take to answer a renewal that is sent now, and the time
	// between two that fail at once. It may be called while the keeper is locked.
	Limits(now monotonic.Moment) (patience, pause time.Duration)
	// Wait says that the item is due and is not renewed yet, because the store does not answer.
	Wait()
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

// A Slot is the place of an item in the keeper's schedule. The TTL is constant.
type Slot struct {
	TTL time.Duration

	due   monotonic.Moment
	in    *schedule // nil: none
	at    int32     // the index in that
	asked int32     // calls of Renew that are not answered: the keeper leaves a repetition to them
	gone  bool      // it was removed

	most     int32            // how many are renewed with it at most, because a renewal failed; 0: none has
	failures int32            // since it was renewed
	call     uint32           // the last one that was answered for it
	failed   monotonic.Moment // when the last one was
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

// MaxCall is how long one call may take.
const MaxCall = 10 * time.Second

// A Keeper renews items. Items whose TTLs lie within a factor of two form a group with its own
// schedule and timer: a slow call for items with long TTLs must not delay those with short
// ones. Between renewals there is no goroutine.
type Keeper struct {
	host Host

	mu      sync.Mutex // protects what follows and every slot
	groups  [64]*group // by the length of the TTL in bits
	made    []*group   // all of them
	pace    pace
	store   health
	calls   uint32 // that were answered
	stopped bool
}

// New makes a keeper.
func New(host Host) *Keeper { return &Keeper{host: host} }

// A group is protected by the keeper's mu.
type group struct {
	keeper *Keeper
	least  time.Duration // the shortest TTL that belongs to the group; constant
	due    schedule
	next   alarm // of round
	busy   bool  // a round is under way, and sets the alarm when it ends

	failed schedule         // items that are renewed again
	ready  schedule         // those whose time has come
	again  alarm            // of repeat
	probe  monotonic.Moment // no probe is sent before
}

// An alarm is a timer.
type alarm struct {
	timer *time.Timer
	at    monotonic.Moment // zero: it is not set
}

// set has f called at that moment, or leaves the alarm if it is set to an earlier one.
func (a *alarm) set(clock *monotonic.Clock, at monotonic.Moment, f func()) {
	if a.at != 0 && at >= a.at {
		return
	}
	a.at = at
	if a.timer == nil {
		a.timer = time.AfterFunc(clock.Until(at), f)
	} else {
		a.timer.Reset(clock.Until(at))
	}
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
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

// push and pull are called with the keeper locked, as are the methods of a group but round and
// repeat.
func (k *Keeper) push(item Item, due monotonic.Moment) {
	s := item.slot()
	if k.stopped || s.in != nil {
		return
	}
	g := k.group(s)
	s.due, s.most, s.failures = due, 0, 0
	g.due.add(item)
	g.arm()
}

func (k *Keeper) pull(item Item) {
	if s := item.slot(); s.in != nil {
		heap.Remove(s.in, int(s.at))
	}
}

func (k *Keeper) group(s *Slot) *group {
	n := bits.Len64(uint64(s.TTL)) // 55 for a TTL of a year
	g := k.groups[n]
	if g == nil {
		g = &group{
			keeper: k, least: 1 << (n - 1),
			due: schedule{before: sooner}, failed: schedule{before: sooner}, ready: schedule{before: lessSuspect},
		}
		k.groups[n], k.made = g, append(k.made, g)
	}
	return g
}

// Stop ends all timers for good.
func (k *Keeper) Stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	for _, g := range k.made {
		g.next.stop()
		g.again.stop()
	}
}

// Rearm sets all timers again, by the clock's present reading.
func (k *Keeper) Rearm() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range k.made {
		g.next.at, g.again.at = 0, 0
		g.arm()
	}
}

// arm sets the alarms to the first renewals due.
func (g *group) arm() {
	k := g.keeper
	if k.stopped {
		return
	}
	if g.due.Len() > 0 && !g.busy {
		g.next.set(k.host.Clock, g.due.first().due, g.round)
	}
	if g.failed.Len()+g.ready.Len() > 0 {
		g.again.set(k.host.Clock, g.repeatable(), g.repeat)
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
		batch, more := g.take(due, soon, bound/4)
		if !more {
			k.renew(batch)
			return
		}
		if len(batch) == 0 { // all of it has ended, or is being renewed
			continue
		}
		answered := make(chan struct{})
		k.host.Tasks.Run(func() {
			_, tell := k.send(batch, 0)
			close(answered)
			tell()
		})
		select {
		case <-answered:
		case <-time.After(bound):
		}
	}
}

// take removes from the schedule those due soon if the first is due, as many as the store is likely to
// answer in time, and begins their renewals. While it does not answer, they join those that failed.
// It reports whether there are more.
func (g *group) take(due, soon monotonic.Moment, in time.Duration) (batch []Item, more bool) {
	k := g.keeper
	var waiting []Item
	k.mu.Lock()
	g.next.at = 0
	if g.due.dueBy(due) {
		size := k.pace.bulk(in)
		if !k.store.answering() {
			for now := k.host.Clock.Now(); g.due.dueBy(soon); {
				item := g.due.take()
				g.wait(item, item.slot().due, int32(size), now)
				waiting = append(waiting, item)
			}
		}
		for g.due.dueBy(soon) && len(batch) < size {
			batch = append(batch, g.due.take())
		}
		more = g.due.dueBy(soon)
	}
	g.busy = more
	g.arm()
	k.mu.Unlock()
	for _, item := range waiting {
		item.Wait()
	}
	return k.begun(batch), more
}

// begun returns those of batch whose renewal the caller is to make, with one call. The others have
// ended, or another renewal is under way and will plan the next one.
func (k *Keeper) begun(batch []Item) []Item {
	mine := batch[:0]
	for _, item := range batch {
		if is, _ := item.Begin(); is {
			mine = append(mine, item)
		}
	}
	if len(mine) > 0 {
		k.mu.Lock()
		k.store.asked++
		k.mu.Unlock()
	}
	return mine
}

// A schedule is a heap of items.
type schedule struct {
	items  []Item
	before func(a, b *Slot) bool
}

func sooner(a, b *Slot) bool { return a.due < b.due }

// lessSuspect puts those first that have failed less often, and then in larger company.
func lessSuspect(a, b *Slot) bool {
	return cmp.Or(cmp.Compare(a.failures, b.failures), cmp.Compare(b.most, a.most), cmp.Compare(a.due, b.due)) < 0
}

func (s *schedule) first() *Slot { return s.items[0].slot() }

func (s *schedule) add(item Item) { heap.Push(s, item) }

func (s *schedule) take() Item { return heap.Pop(s).(Item) }

// dueBy reports whether the first item, of those in order of time, is due by then.
func (s *schedule) dueBy(t monotonic.Moment) bool { return len(s.items) > 0 && s.first().due <= t }

func (s *schedule) Len() int           { return len(s.items) }
func (s *schedule) Less(i, j int) bool { return s.before(s.items[i].slot(), s.items[j].slot()) }
func (s *schedule) Swap(i, j int) {
	s.items[i], s.items[j] = s.items[j], s.items[i]
	s.items[i].slot().at, s.items[j].slot().at = int32(i), int32(j)
}

// Push and Pop are for package heap.
func (s *schedule) Push(x any) {
	item := x.(Item)
	item.slot().in, item.slot().at = s, int32(len(s.items))
	s.items = append(s.items, item)
}

func (s *schedule) Pop() any {
	last := len(s.items) - 1
	item := s.items[last]
	s.items[last] = nil
	s.items = s.items[:last]
	item.slot().in = nil
	return item
}
