package engine

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/swept"
	"github.com/mongolock/mongolock/store"
)

// A core decides. It is told what has happened, one Event at a time, and answers what is to be done. It reads
// no clock, takes no lock and starts nothing: the Engine does, and calls Step with its mutex locked.
//
// The files of the core are key.go (who waits here, and whose turn it is), line.go (our view of the line of
// other processes), news.go (what is heard of keys, and whom to tell), hold.go and term.go (one acquisition),
// renew.go, owed.go and health.go (whether the store answers).
type core struct {
	config *Config
	now    moment // of this step
	ready  *Ready // what this step has come to so far
	spare  []*Ready

	alarms  heap[*alarm]
	sets    uint64 // of alarms
	undone  []*key // keys to be decided before the step ends
	keys    swept.Map[string, *key]
	held    *Hold // the first of those that are not settled
	waiting int   // callers in all queues
	calls   int   // under way, without renewals

	candidates int // those of package leader among the callers that wait

	renewals
	owed
	health
	feed

	slowUntil moment      // a place of this client was passed lately
	place     store.Place // of the next head that wants a key alone; empty: not made yet

	draining bool // nobody may wait any more, and no claim begins
	shut     bool // every lease is given back
	shutMany bool // that are several
	toldSlow bool // the log has it that a TTL is too short
	cut      bool // no call begins any more
}

// An Event is something that has happened.
type Event struct {
	Kind   EventKind
	Caller *Caller       // Want, GiveUp
	Hold   *Hold         // Release, Renew, Detach
	Asker  *Asker        // Release, Renew: who waits for the answer; nil: nobody
	Call   *Call         // Answered
	Key    string        // Freed
	Bound  time.Duration // Release: how long an attempt may take; 0 stands for releaseBound
	Unseen bool          // End: no user has received the lease
	Notice *store.Notice // Heard
	Err    error         // GiveUp: why; FeedLost: nil if the feed is reopened because it is old
	Final  bool          // FeedLost: the store has no feed
	News   bool          // FeedLost: it is worth a line in the log
}

// An EventKind says what has happened.
type EventKind int

// The events.
const (
	Tick     EventKind = iota // time has passed
	Want                      // a caller asks for a key
	GiveUp                    // its context ended
	Release                   // a holder gives its lease back
	End                       // it is about to
	Renew                     // a holder wants its lease renewed now
	Detach                    // a lease goes on elsewhere
	Answered                  // a call of the store is over
	Freed                     // a key may be free, and it is not known who waits
	Heard                     // a notice came
	FeedLive                  // the feed is open: earlier notices may be missing
	FeedLost                  // the feed broke
	Slept                     // the machine was suspended
	Drain                     // the client shuts down: nobody waits any more
	Shut                      // it closes: every lease ends
	Cut                       // it has no more time: no call begins any more
)

// Ready is what is to be done after a step. The order matters: contexts end before a call frees the key.
type Ready struct {
	Deliver []*Asker // have their answers
	End     []*Hold  // have ended
	Calls   []*Call  // of the store
	Inline  *Call    // one that the goroutine makes which brought the event about: it waits for that
	Cut     []*Call  // are not waited for any more
	Waits   []*Caller
	Say     []Message
	Listen  int    // so many more need the feed
	At      moment // the next step is due then; zero: none is
}

// A Message is a line for the log.
type Message struct {
	Level slog.Level
	Text  string
	Args  []any
}

// An Asker waits for an answer.
type Asker struct {
	Done bool
	Hold *Hold // that was granted
	Err  error

	wake chan struct{} // the Engine's
}

// A Call is one call of the store.
type Call struct {
	Kind  CallKind
	Sent  moment // trust in a grant begins here
	Until moment // it is cut off then

	// What is asked.
	Claim   store.Claim
	Ref     store.Ref
	From    *store.Ref // Undo: of a handoff
	Batch   []*Hold    // Renew
	Release store.ReleaseRequest
	Place   store.Place
	Keys    []string
	All     []store.Notice

	// What was answered.
	Err      error
	Grant    store.Grant
	Answers  []store.Renewed
	Released store.ReleaseResult
	Seen     []store.Status // Look, Leave
	Settled  bool

	// Whose it is.
	inline bool    // it goes to Ready.Inline
	hold   *Hold   // Claim, Transfer: what it will be; Release
	from   *Hold   // Transfer: what is handed over
	by     *Caller // Claim, Transfer
	move   Move    // Claim of a head
	debt   *debt
	then   look     // Look
	asked  []*Asker // RenewAll
	slow   alarm    // RenewAll: others go beside it from then on

	told   []store.Notice // Release: who was told beside it
	toldAt moment
	streak streak // Transfer
	goesOn bool   // Transfer: nothing was changed, and the hold is released next

	result error // Claim, Transfer: what it has come to

	outside callOutside
}

// A CallKind says which method of the store is called.
type CallKind int

// The calls.
const (
	Claim CallKind = iota
	Transfer
	RenewAll
	ReleaseOne
	Undo
	Leave
	Look
	Notify
)

// Step takes in an event that happened now.
func (c *core) Step(now moment, e Event) *Ready {
	c.now, c.ready = max(c.now, now), &Ready{}
	if last := len(c.spare) - 1; last >= 0 {
		c.ready, c.spare = c.spare[last], c.spare[:last]
	}
	c.ring()
	switch e.Kind {
	case Tick:
	case Want:
		c.want(e.Caller)
	case GiveUp:
		c.giveUp(e.Caller, e.Err)
	case Release:
		c.release(e.Hold, e.Asker, e.Bound)
	case End:
		e.Hold.unseen = e.Hold.unseen || e.Unseen
		c.end(e.Hold, ErrReleased)
	case Renew:
		c.renewNow(e.Hold, e.Asker)
	case Detach:
		c.detach(e.Hold, e.Asker)
	case Answered:
		c.answered(e.Call)
	case Freed:
		c.freed(e.Key)
	case Heard:
		c.heard(*e.Notice)
	case FeedLive:
		c.feedLive()
	case FeedLost:
		c.feedLost(e)
	case Slept:
		c.slept()
	case Drain:
		c.drain()
	case Shut:
		c.shutDown()
	case Cut:
		c.cut = true
	}
	for i := 0; i < len(c.undone); i++ { // there may be more each time
		c.undone[i].todo = false
		c.decide(c.undone[i])
	}
	c.undone = c.undone[:0]
	if len(c.alarms.items) > 0 {
		c.ready.At = c.alarms.items[0].at
	}
	return c.ready
}

// doneWith takes a Ready back.
func (c *core) doneWith(r *Ready) {
	if len(c.spare) >= 8 {
		return
	}
	clear(r.Deliver)
	clear(r.End)
	clear(r.Calls)
	*r = Ready{Deliver: r.Deliver[:0], End: r.End[:0], Calls: r.Calls[:0]}
	c.spare = append(c.spare, r)
}

// call has the store called until then.
func (c *core) call(call *Call, until moment) {
	call.Sent, call.Until = c.now, until
	if call.Kind != RenewAll { // one that is slow changes nothing of what is given back
		c.calls++
	}
	if call.inline {
		c.ready.Inline = call
	} else {
		c.ready.Calls = append(c.ready.Calls, call)
	}
}

// answered takes in the answer of a call.
func (c *core) answered(call *Call) {
	if call.Kind != RenewAll {
		c.calls--
	}
	switch call.Kind {
	case Claim:
		c.claimed(call)
	case Transfer:
		c.transferred(call)
	case RenewAll:
		c.renewed(call)
	case ReleaseOne:
		c.released(call)
	case Undo:
		c.undoTried(call)
	case Leave:
		c.left(call)
	case Look:
		c.looked(call)
	case Notify:
		c.notified(call)
	}
}

// answer gives an asker its answer.
func (c *core) answer(a *Asker, h *Hold, err error) {
	if a == nil || a.Done {
		return
	}
	a.Done, a.Hold, a.Err = true, h, err
	if a.wake != nil { // otherwise it looks for itself
		c.ready.Deliver = append(c.ready.Deliver, a)
	}
}

func (c *core) say(l slog.Level, text string, args ...any) {
	c.ready.Say = append(c.ready.Say, Message{l, text, args})
}

// idle reports whether nothing is held, owed, waited for or under way.
func (c *core) idle() bool { return c.held == nil && c.owed.none() && c.waiting == 0 && c.calls == 0 }

// drain gives up all places in lines, and tells of keys that were freed: this client will not see whether somebody
// comes for them.
func (c *core) drain() {
	if c.draining {
		return
	}
	c.draining = true
	for _, name := range c.all() {
		q := c.keys.All[name]
		if q.view.Joined {
			q.view.Joined = false
			c.giveUpPlace(name, q.view.Place, true)
		}
		if q.check.at != 0 {
			c.set(&q.check.alarm, 0)
			c.tell(notices(store.KindNext, name, q.check.expected))
		}
	}
}

// shutDown ends all holds. Each is given back one margin later: its holder may need that time to notice.
func (c *core) shutDown() {
	c.shut = true
	var all []*Hold
	for h := c.held; h != nil; h = h.next {
		all = append(all, h)
	}
	c.shutMany = len(all) > 1
	for _, h := range all {
		if c.end(h, ErrClosed) && h.state == kept {
			c.owe(h, c.now.Add(h.term.margin))
		}
	}
	c.pay()
}

// grace returns how long it takes until the last hold may be given back.
func (c *core) grace() (d time.Duration) {
	for h := c.held; h != nil; h = h.next {
		if h.debt != nil && h.state == kept {
			d = max(d, h.debt.next.Sub(c.now))
		}
	}
	return d
}

// undosLeft returns the keys of claims that are not undone, in order.
func (c *core) undosLeft() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(c.undos)) {
		for range c.undos[name] {
			names = append(names, name)
		}
	}
	return names
}

// An alarm is a time at which something looks at itself again. Each is set once at most.
type alarm struct {
	at    moment // zero: it is not set
	index int
	order uint64 // of those that ring at one moment, the one that was set first is the first
	of    interface{ ring(c *core) }
}

// set sets an alarm, whatever it was set to before. Zero stops it.
func (c *core) set(a *alarm, at moment) {
	was := a.at
	if was == at {
		return
	}
	c.sets++
	a.at, a.order = at, c.sets
	switch {
	case at == 0:
		c.alarms.remove(a)
	case was == 0:
		c.alarms.push(a)
	default:
		c.alarms.fix(a)
	}
}

// setBy makes sure that an alarm rings then or sooner.
func (c *core) setBy(a *alarm, at moment) {
	if a.at == 0 || at < a.at {
		c.set(a, at)
	}
}

// ring calls those whose time has come.
func (c *core) ring() {
	for len(c.alarms.items) > 0 && c.alarms.items[0].at <= c.now {
		a := c.alarms.take()
		a.at = 0
		a.of.ring(c)
	}
}

// alarms have those that are set. The order is a fixed one, so that a simulation can be repeated.
func alarms() heap[*alarm] {
	return heap[*alarm]{
		before: func(a, b *alarm) bool { return a.at < b.at || a.at == b.at && a.order < b.order },
		index:  func(a *alarm) *int { return &a.index },
	}
}
