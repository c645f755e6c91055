package mongolock

import (
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/term"
	"github.com/mongolock/mongolock/internal/wake"
	"github.com/mongolock/mongolock/store"
)

// The head of a queue waits for these times.
const (
	askMost       = time.Minute            // between two claims
	wordLeast     = 3 * time.Minute        // a word is left for at least this long
	readAfterWord = 50 * time.Millisecond  // after a word was left, until the key is read
	askAgain      = 5 * time.Millisecond   // if others are always faster
	leaveAlone    = 50 * time.Millisecond  // how long a key is left to other processes
	readLeftAlone = 10 * time.Millisecond  // meanwhile, until it is read
	faultLeast    = 500 * time.Millisecond // between claims that fail
	faultMost     = time.Second
)

// A wakeUp is a hint to ask for a key before the plan says so. It belongs to the queue, so it
// stays when the head leaves.
type wakeUp int

const (
	noWakeUp  wakeUp = iota
	lookAgain        // something changed, but the key is probably still held
	mayBeFree        // another client said that the key may be free
)

// A plan is what the head of a queue knows of a key that another process holds, and when the
// head acts. A claim asks for the key and leaves a word: a mark which says that a process
// waits, so that the next release sends a wake-up. A read changes nothing. Only Client.replan
// sets the times. A plan is protected by Client.mu.
type plan struct {
	askAt  monotonic.Moment // send a claim, if nothing wakes the head earlier
	notYet monotonic.Moment // send none before this, despite wake-ups: the last one failed
	readAt monotonic.Moment // read the key; zero: no need

	watched   bool             // the client's watch counts this wait
	seen      *store.Status    // by the last claim or read; nil: none was answered yet
	steady    int              // reads in a row that showed the same holders as when our word was left
	early     bool             // the last claim came on a wake-up and found a holder from before it, which may be about to leave
	movedAt   monotonic.Moment // when a read last showed other holders
	freeSeen  int              // refusals in a row that showed a free key
	wordUntil monotonic.Moment // our word is effective until then, by our clock
	reserved  time.Time        // the end of the writer's word that our own refusal showed
	pause     time.Duration    // before the next read
	faults    *backoff.Backoff // between failed claims; nil: the last claim was answered
}

// A change is a reason to make the plan again.
type change int

const (
	claimRefused change = iota // a claim was refused, and left a word
	claimFailed                // a claim failed
	keyRead                    // a read showed that the key is held
	readFailed                 // a read failed
	keyLeftAlone               // the key is left to other processes for a while
)

// replan sets when the head of q asks and reads next, after a change. s is the status that the
// change showed, or nil. want is how long the claim asked its word to stand. Call it with c.mu
// held.
func (c *Client) replan(q *queue, why change, s *store.Status, want time.Duration) {
	p, t, now := &q.plan, q.head.terms, c.clock.Now()
	switch why {
	case claimFailed:
		if p.faults == nil {
			p.faults = backoff.New(faultLeast, faultMost)
		}
		p.notYet = now.Add(p.faults.Next())
		p.askAt = p.notYet
		return
	case keyLeftAlone:
		if p.readAt == 0 {
			p.readAt = now.Add(backoff.Jitter(readLeftAlone))
		}
		return
	case claimRefused:
		if !p.shows(s) || p.early {
			p.steady = 0
		}
		p.faults, p.notYet, p.reserved, p.pause = nil, 0, q.head.ownWord(s), readAfterWord
		if p.early {
			p.pause = askAgain
		}
		p.wordUntil = now.Add(wordOf(s, t, want) / 2)
	case keyRead:
		p.steady++
		if p.early = p.early && p.shows(s) && p.pause < wake.PollMost; p.early {
			p.steady = 0
		}
		if !p.shows(s) {
			p.steady, p.movedAt = 0, now
		}
	case readFailed:
	}

	if s != nil {
		p.seen = s
		p.askAt = min(now.Add(term.Drifted(opens(s, t))), p.wordUntil, now.Add(backoff.Jitter(askMost*3/4)))
	}
	if why == claimRefused {
		if p.freeSeen++; !open(s, t) {
			p.freeSeen = 0
		}
		switch { // The key was freed while the refusal was on its way.
		case p.freeSeen == 1:
			p.askAt = now
		case p.freeSeen > 1: // other waiters are always faster: pause, so that this is not a tight loop
			p.askAt = now.Add(backoff.Jitter(askAgain))
		}
	}

	p.readAt = 0
	if !p.wordIsSure() && c.watch.Live() { // without a feed all keys are polled anyway
		if p.steady == 1 {
			p.pause = wake.PollMost
		}
		p.readAt = now.Add(backoff.Jitter(p.pause))
		p.pause = min(2*p.pause, wake.PollMost)
	}
	if s != nil && t.shares() && s.Reserved() {
		// The waiting writer may be served when these holders are gone, and run out in its turn
		// before the end of its word. No wake-up tells of either.
		until := term.Drifted(s.Left()) + readAfterWord
		if s.Free() { // the writer comes at any moment, if it lives
			until = backoff.Jitter(wake.PollMost)
		}
		if at := now.Add(until); at < p.askAt && (p.readAt == 0 || at < p.readAt) {
			p.readAt = at
		}
	}
	q.head.poke() // it may have planned to sleep for longer
}

// asksAt returns when a claim is due.
func (q *queue) asksAt() monotonic.Moment {
	if q.wakeUp != noWakeUp {
		return q.plan.notYet
	}
	return max(q.plan.askAt, q.plan.notYet)
}

// wordIsSure reports whether two reads, a moment apart, showed the holders that our word was
// left with: then their release will see the word. Before that, a release that was under way
// may have removed the word.
func (p *plan) wordIsSure() bool { return p.steady > 1 }

// anySure reports whether a head is sure of its word. The heads that are not will read twice
// more, whatever they have seen. Call it with c.mu held.
func (c *Client) anySure() (sure bool) {
	for _, q := range c.queues.All {
		if q.plan.wordIsSure() {
			sure = true
		} else {
			q.plan.steady = 0
		}
	}
	return sure
}

// heldFor returns how long the key has been held alone; 0 if it is not.
func heldFor(s *store.Status) time.Duration {
	if s.Mode != store.Exclusive || len(s.Holders) == 0 {
		return 0
	}
	return s.Now.Sub(s.Holders[0].Since)
}

// shows reports whether the holders are the same as those seen last.
func (p *plan) shows(s *store.Status) bool {
	return p.seen != nil && slices.EqualFunc(s.Holders, p.seen.Holders, func(a, b store.Holder) bool { return a.ID == b.ID })
}

// moves reports whether the key changed hands a moment ago.
func (p *plan) moves(now monotonic.Moment) bool {
	return p.movedAt != 0 && now.Sub(p.movedAt) < wake.PollMost
}

// expectsRefusal reports whether a claim on these terms will probably be refused: the store may
// then read before it writes.
func (q *queue) expectsRefusal(t *terms) bool {
	s := q.plan.seen
	return s != nil && !open(s, t) && (q.wakeUp != mayBeFree || amongSharers(s, t))
}

// wake makes the head ask for the key, because it may be free.
func (q *queue) wake() {
	if q.head != nil && (q.sharers == 0 || q.head.terms.shares()) { // otherwise the key cannot be free for it
		q.wakeUp = mayBeFree
		q.head.poke()
	}
}

// look makes the head ask for the key although it is probably still held.
func (q *queue) look() {
	if q.head != nil {
		q.wakeUp = max(q.wakeUp, lookAgain)
		q.head.poke()
	}
}
