package mongolock

import (
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// How long the head of a queue waits for what.
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

// A wakeUp is a hint to ask for a key before the plan says so. It belongs to the
// queue: a head that leaves does not take it along.
type wakeUp int

const (
	noWakeUp  wakeUp = iota
	lookAgain        // something changed, but the key is probably still held
	mayBeFree        // somebody said that the key may be free
)

// A plan is what the head of a queue knows of a key that another process holds, and
// when it acts. A claim asks for the key and leaves a word: a mark that somebody
// waits, so that the next release wakes us. A read only looks. The dates are set by
// Client.replan and nowhere else. Protected by Client.mu.
type plan struct {
	askAt  monotonic.Moment // send a claim, if nothing wakes the head earlier
	notYet monotonic.Moment // send none before this, whatever wakes it: the last one failed
	readAt monotonic.Moment // read the key; zero: no need

	checkAt monotonic.Moment // see whether the lease of this client is there that the head waits for; zero: not planned

	watched   bool             // the client's watch knows of this wait
	seen      *store.Status    // by the last claim or read; nil: none was answered yet
	steady    int              // reads in a row that showed the holders which our word was left with
	early     bool             // the last claim came on a wake-up and found a holder from before it: he may be about to go
	movedAt   monotonic.Moment // when a read last showed other holders
	freeSeen  int              // refusals in a row that showed a free key
	wordUntil monotonic.Moment // our word does its work until then, by our clock
	reserved  time.Time        // the end of the writer's word that our own refusal showed
	pause     time.Duration    // before the next read
	faults    *backoff.Backoff // of claims that failed; nil: the last one was answered
}

// A change is why a plan is made again.
type change int

const (
	claimRefused change = iota // a claim was refused, and left a word
	claimFailed                // a claim failed
	keyRead                    // a read showed that the key is held
	readFailed                 // a read failed
	keyLeftAlone               // the key is left to other processes for a while
)

// replan sets when the head of q asks and reads next, after a change. s is the
// status that the change showed, if any, and want how long the claim asked that its
// word should stand. With c.mu held.
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
		if p.early = p.early && p.shows(s) && p.pause < pollMost; p.early {
			p.steady = 0
		}
		if !p.shows(s) {
			p.steady, p.movedAt = 0, now
		}
	case readFailed:
	}

	if s != nil {
		p.seen = s
		p.askAt = min(now.Add(drifted(opens(s, t))), p.wordUntil, now.Add(backoff.Jitter(askMost*3/4)))
	}
	if why == claimRefused {
		if p.freeSeen++; !open(s, t) {
			p.freeSeen = 0
		}
		switch { // It was freed while the refusal was on its way.
		case p.freeSeen == 1:
			p.askAt = now
		case p.freeSeen > 1: // and others are always faster: not in a tight loop
			p.askAt = now.Add(backoff.Jitter(askAgain))
		}
	}

	p.readAt = 0
	if !p.wordIsSure() && c.watch.feed.Live() && !knob.WordAfterLook { // without a feed every key is polled
		if p.steady == 1 {
			p.pause = pollMost
		}
		p.readAt = now.Add(backoff.Jitter(p.pause))
		p.pause = min(2*p.pause, pollMost)
	}
	if s != nil && t.shares() && s.Reserved() {
		// The writer may be served when these holders are over, and run out in its turn before
		// the end of its word: of neither would a wake-up tell.
		until := drifted(s.Left()) + readAfterWord
		if s.Free() { // it comes at any moment, if it lives
			until = backoff.Jitter(pollMost)
		}
		if at := now.Add(until); at < p.askAt && (p.readAt == 0 || at < p.readAt) {
			p.readAt = at
		}
	}
	q.head.poke() // it may sleep for longer
}

// asksAt is when a claim is due.
func (q *queue) asksAt() monotonic.Moment {
	if q.wakeUp != noWakeUp {
		return q.plan.notYet
	}
	return max(q.plan.askAt, q.plan.notYet)
}

// wordIsSure reports whether two reads showed the holders that our word was left
// with, the second one a moment after the first: then their release will see the
// word. Before that the word may have gone with a holder whose release was under way.
func (p *plan) wordIsSure() bool { return p.steady > 1 }

// anySure reports whether a head is sure of its word. The others will look twice more, whatever
// they have seen. With c.mu held.
func (c *Client) anySure() (sure bool) {
	for _, q := range c.queues {
		if q.plan.wordIsSure() {
			sure = true
		} else {
			q.plan.steady = 0
		}
	}
	return sure
}

// heldFor is how long the key is held alone; 0 if it is not.
func heldFor(s *store.Status) time.Duration {
	if s.Mode != store.Exclusive || len(s.Holders) == 0 {
		return 0
	}
	return s.Now.Sub(s.Holders[0].Since)
}

// shows reports whether the holders are those that were seen last.
func (p *plan) shows(s *store.Status) bool {
	return p.seen != nil && slices.EqualFunc(s.Holders, p.seen.Holders, func(a, b store.Holder) bool { return a.ID == b.ID })
}

// moves reports whether the key changed hands a moment ago.
func (p *plan) moves(now monotonic.Moment) bool {
	return p.movedAt != 0 && now.Sub(p.movedAt) < pollMost
}

// expectsRefusal reports whether a claim on these terms will probably be refused:
// a store may then look first.
func (q *queue) expectsRefusal(t *terms) bool {
	s := q.plan.seen
	return s != nil && !open(s, t) && (q.wakeUp != mayBeFree || amongSharers(s, t))
}

// wake makes the head ask for the key: it may be free. With Client.mu held.
func (q *queue) wake() {
	if q.head != nil && (q.sharers == 0 || q.head.terms.shares()) { // else it cannot be
		q.wakeUp = mayBeFree
		q.head.poke()
	}
}

// look makes the head ask for the key, which is probably still held. With Client.mu held.
func (q *queue) look() {
	if q.head != nil {
		q.wakeUp = max(q.wakeUp, lookAgain)
		q.head.poke()
	}
}
