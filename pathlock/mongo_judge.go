package pathlock

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

// A verdict holds what a request finds in its way.
type verdict struct {
	held           Affecting     // locks, except those in doubt
	older, younger []*record     // locks in doubt, by whether they were added before this one
	drop           []*record     // those that have run out
	first          []reservation // of waiters that the request lets go first
	mine           bool          // the request's own lock was seen
	now            interval
}

// refuses reports whether the request has to be refused.
func (v *verdict) refuses() bool { return v.held.Len()+len(v.first) > 0 }

func (v *verdict) doubtful() bool { return len(v.older)+len(v.younger) > 0 }

// judge sorts the records that were seen. mine is the lock of the request, if it was added.
func (m *mongoTree) judge(ctx context.Context, r Request, mine *record, s *sight, d *doubts) (v verdict, err error) {
	if v.now, err = m.clock(server.Bare(ctx), s.records); err != nil {
		return v, err
	}
	var others []*record
	for i := range s.records {
		switch o := &s.records[i]; {
		case mine != nil && o.Token == mine.Token:
			v.mine = true
			m.saw(mine, o)
		case overlap(r, o.Lock):
			others = append(others, o)
		}
	}
	j, err := m.judged(ctx, r.about(), v.now, s, others)
	if err != nil {
		return v, server.NotApplied(err)
	}
	held := newDocument()
	for _, o := range others {
		switch {
		case j.over[o.Token]:
			v.drop = append(v.drop, o)
		case !d.about(o, v.now, m.base.Clock.Now()):
			held.put(j.shown(o))
		case mine != nil && mine.before(o):
			v.younger = append(v.younger, o)
		default:
			v.older = append(v.older, o)
		}
	}
	v.held, v.first = held.conflicts(r, v.now), keptOut(r, s.word.reserved, v.now)
	return v, nil
}

// doubts holds what a Lock remembers of locks in its way that may yet be withdrawn. No safety
// depends on it: a lock that will be withdrawn may be treated as one that stays.
type doubts struct {
	trip time.Duration // the longest time that one of its commands took, with what passed before it
	last server.Moment // when it last had an answer
	seen map[string]server.Moment
	next time.Duration // the next pause

	met       map[string]bool // the locks that were in doubt when the request was first refused
	undecided int             // how many of these still are

	withdrew bool // … a lock that others may have been refused for
}

// answered counts a command. Where a process stands still between its commands, because it
// has no processor, others may as well.
func (d *doubts) answered(sent, at server.Moment) {
	if d.last == 0 {
		d.last = sent
	}
	d.trip = max(d.trip, at.Sub(d.last))
	d.last = at
}

// about reports whether a lock is in doubt: it was added a moment ago by the server's clock,
// and was first seen a moment ago by this process's own.
func (d *doubts) about(o *record, now interval, at server.Moment) bool {
	moment := min(max(doubtLeast, doubtTrips*d.trip), doubtMost)
	if now.Earliest.Sub(o.Since) >= moment {
		return false
	}
	first, known := d.seen[o.Token]
	if !known {
		if d.seen == nil {
			d.seen = make(map[string]server.Moment)
		}
		d.seen[o.Token] = at
		return true
	}
	return at.Sub(first) < moment
}

// refused records a refusal. Locks in doubt are not listed in it, though they may be as good as
// granted. Those that are added later were not there when the request came.
func (d *doubts) refused(v *verdict) {
	doubtful := slices.Concat(v.older, v.younger)
	if d.met == nil {
		d.met = make(map[string]bool)
		for _, o := range doubtful {
			d.met[o.Token] = true
		}
	}
	d.undecided = 0
	for _, o := range doubtful {
		if d.met[o.Token] {
			d.undecided++
		}
	}
}

// pause lets others go on.
func (m *mongoTree) pause(ctx context.Context, d *doubts) outcome {
	d.next = min(max(2*d.next, yieldLeast), yieldMost)
	rest := backoff.Jitter(d.next)
	d.last = m.base.Clock.Now().Add(rest)
	backoff.Sleep(ctx, rest)
	return outcome{fault: notStarted(ctx)}
}

// overlap reports whether a request and a lock overlap and are not both shared. The locks that
// the find returned may not, because hashes may be equal.
func overlap(r Request, l Lock) bool {
	if r.Mode == Shared && l.Mode == Shared {
		return false
	}
	return l.Covers(r.Path) || r.Depth == Infinity && below(l.Path, r.Path)
}

// before is the order of locks in doubt: by the server's clock when they were added, and then
// by token. Both sides compute it from the same two documents.
func (r *record) before(o *record) bool {
	if !r.at.Equal(o.at) {
		return r.at.Before(o.at)
	}
	return strings.Compare(r.Token, o.Token) < 0
}
