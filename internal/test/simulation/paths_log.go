package simulation

import (
	"cmp"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/pathlock"
)

// A pathRecord is the document of a lock in the database's log.
type pathRecord struct {
	pathHold
	until   time.Time
	ttl     time.Duration
	epoch   any
	late    bool // it was refreshed when it may have run out: its holder removes it again
	stray   bool // it was added by a command that was sent before a primary failed
	owner   int  // the client that added it
	added   time.Duration
	changed time.Duration // when it was written last
}

// silent reports whether a lock was not written for its whole timeout. Rivals that have seen
// that may remove it. It may have a while left by its date then, as that is reckoned from
// the upper end of what is known of the server's clock.
func (r *pathRecord) silent(at time.Duration) bool { return r.ttl > 0 && at-r.changed >= r.ttl }

func readPath(d bson.D) (token string, r pathRecord, ok bool) {
	token, _ = lookup(d, "_id").(string)
	text := func(field string) string { s, _ := lookup(d, field).(string); return s }
	r.path, r.mode, r.depth = text("path"), pathlock.Mode(text("mode")), pathlock.Depth(text("depth"))
	until, _ := lookup(d, "until").(bson.DateTime)
	r.until = until.Time().UTC()
	r.epoch = lookup(d, "epoch")
	ms, _ := lookup(d, "ttl").(int64)
	r.ttl = time.Duration(ms) * time.Millisecond
	return token, r, r.path != ""
}

// elected reports whether an epoch is an election's, or that of a server by itself, and no
// label of a writer that knows of none.
func elected(epoch any) bool {
	id, _ := epoch.(bson.ObjectID)
	return id.IsZero() || id[0] == 0x7f
}

// held reports whether a lock had a holder at a moment: it was told of, and not let go.
func (h *pathHold) held(at time.Duration) bool {
	return h != nil && h.from <= at && !(h.ended && h.endedAt <= at)
}

// judgeLog reads the log of the last primary: what was rolled back never happened.
//
//   - A lock is never granted beside another that conflicts, is live, and was not let go.
//   - A live lock that was not let go is not removed, unless it was silent for its timeout.
//   - A lock that has run out is not refreshed, as far as its holder is told.
//   - A lock whose grant was told to no caller is removed once the faults are over, unless its
//     command came late and after the failure of a primary: what the clean-up's session
//     refuses is one node's memory (docs/internals/design.md §4.1). Then it runs out.
//
// A lock is in the log before its Lock knows whether it is granted; so it counts from when
// its holder was told.
func (r *pathRun) judgeLog(tolerance time.Duration) {
	m := r.w.cluster.leader
	if m == nil {
		return
	}
	l := &pathLog{run: r, tolerance: tolerance, apart: r.w.plan.apart, slack: 2 * r.w.plan.clocksApart, live: map[string]*pathRecord{}, told: slices.Clone(r.order)}
	slices.SortStableFunc(l.told, func(a, b string) int { return cmp.Compare(r.holds[a].from, r.holds[b].from) })
	for _, e := range r.w.writes() {
		if by := e.Tag.(*mark); e.NS == locksNS {
			l.grants(by.at)
			l.last = by
			l.write(e, by)
		}
	}
	l.grants(r.w.since())
	for token, o := range l.live {
		if r.holds[token] == nil && !o.stray && !r.dead[o.owner] && o.until.After(m.now().Add(-longest)) {
			r.violation("ghost", "%s %s %s of client %d, at the end", o.path, o.mode, o.depth, o.owner)
		}
	}
}

// A pathLog is a reading of the log.
type pathLog struct {
	run       *pathRun
	tolerance time.Duration
	apart     bool          // dates say little: another primary may have written them
	slack     time.Duration // by how much they may be wrong
	live      map[string]*pathRecord
	told      []string // the locks that are still to be granted, in the order in which they were
	last      *mark    // the write before
}

// grants judges the locks that callers were told of until a moment.
func (l *pathLog) grants(until time.Duration) {
	r := l.run
	for ; len(l.told) > 0 && r.holds[l.told[0]].from < until; l.told = l.told[1:] {
		token := l.told[0]
		hold := r.holds[token]
		if l.last == nil {
			continue
		}
		clock := l.last.clock.Add(hold.from - l.last.at)
		for other, o := range l.live {
			held := r.holds[other]
			if other != token && !l.apart && held.held(hold.from) && inConflict(held, hold) && o.until.After(clock.Add(l.tolerance)) && hold.to > hold.from {
				r.violation("granted beside", "%s %s %s beside %s %s %s, at %v", hold.path, hold.mode, hold.depth, o.path, o.mode, o.depth, hold.from)
			}
		}
	}
}

func (l *pathLog) write(e docdb.Entry, by *mark) {
	r, tolerance := l.run, l.tolerance
	token, before, was := readPath(e.Before)
	next, after, is := readPath(e.After)
	if next != "" {
		token = next
	}
	if old := l.live[token]; old != nil {
		before.late, before.stray, before.owner, before.added, before.changed = old.late, old.stray, old.owner, old.added, old.changed
	}
	hold := r.holds[token]
	after.changed = by.at
	switch {
	case is && !was:
		after.owner, after.added = by.client, by.at
		after.stray = slices.ContainsFunc(r.w.cluster.failed, func(at time.Duration) bool { return by.began <= at && at <= by.at })
		l.live[token] = &after
	case was && !is:
		delete(l.live, token)
		if hold == nil && !before.stray && before.added < r.quiet && by.at > r.quiet && !r.dead[before.owner] && before.until.After(by.clock.Add(r.quiet-by.at+l.slack)) {
			r.violation("ghost", "%s %s %s of client %d, until %v", before.path, before.mode, before.depth, before.owner, by.at)
		}
		live := before.until.After(by.clock.Add(tolerance)) && !before.silent(by.at)
		if l.apart {
			live = hold != nil && hold.to > by.at+tolerance
		}
		if hold.held(by.at) && !before.late && live {
			r.violation("taken away", "%s %s %s of client %d, by client %d at %v", before.path, before.mode, before.depth, hold.client, by.client, by.at)
		}
	case was && is:
		after.owner, after.added, after.stray = before.owner, before.added, before.stray
		after.late = !before.until.After(by.clock.Add(tolerance))
		l.live[token] = &after
		_, told := r.clean[token+after.until.String()]
		if oneClock := before.epoch == after.epoch && elected(after.epoch) && !r.w.plan.apart; oneClock && told && after.until.After(before.until) && !before.until.After(by.clock.Add(-tolerance)) {
			r.violation("revived", "%s %s %s at %v, %v after its end", before.path, before.mode, before.depth, by.at, by.clock.Sub(before.until))
		}
	}
}
