package pathlock

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"
)

// logLength is the number of events that a tree keeps for its watchers.
const logLength = 64

// A document is a tree as a storage keeps it: the locks, including those that ran out and were
// not removed yet, and the data for watchers. It is not safe for concurrent use.
type document struct {
	Seq     int64     // the number of the last event
	Watched time.Time // until then a process watches or waits
	Log     []Event   // the last events, oldest first: logLength, and those of the last write

	Reserved []reservation // by exclusive waiters

	index index

	changed bool // there is something to write
	grown   bool // a lock was added
	ended   bool // the last write removed a lock, or logged an event
}

// newDocument makes a tree of some locks: without any, as one is that was never written to.
func newDocument(locks ...Lock) *document {
	d := &document{index: index{root: &node{}, tokens: make(map[string]*entry)}}
	slices.SortFunc(locks, func(a, b Lock) int { return a.ExpireAt.Compare(b.ExpireAt) }) // expiry grows at its end
	for _, l := range locks {
		d.index.put(l)
	}
	return d
}

// put adds a lock, or replaces the one with the same token.
func (d *document) put(l Lock) {
	d.changed, d.grown = true, d.grown || d.index.tokens[l.Token] == nil
	d.index.put(l)
}

// drop removes a lock, if it is there.
func (d *document) drop(token string) {
	if d.index.tokens[token] != nil {
		d.index.drop(token)
		d.changed, d.ended = true, true
	}
}

// reserve adds a reservation, or replaces the one with the same ID.
func (d *document) reserve(v reservation) {
	d.unreserve(v.ID)
	d.Reserved, d.changed = append(d.Reserved, v), true
}

// unreserve removes reservations. It reports whether one was there.
func (d *document) unreserve(ids ...string) bool {
	before := len(d.Reserved)
	d.Reserved = slices.DeleteFunc(d.Reserved, func(v reservation) bool { return slices.Contains(ids, v.ID) })
	d.changed = d.changed || len(d.Reserved) != before
	return len(d.Reserved) != before
}

// list returns all locks, in the order in which they are written.
func (d *document) list() []Lock {
	var all []Lock
	for _, e := range d.index.tokens {
		all = append(all, e.Lock)
	}
	slices.SortFunc(all, byPath)
	return all
}

// A scope says where affecting looks, in addition to the path itself.
type scope struct{ parents, children, exclusiveOnly bool }

// affecting finds the live locks around a path.
func (d *document) affecting(path string, now interval, what scope) (a Affecting) {
	add := func(to *[]Lock, e *entry) {
		if e.live(now.Earliest) && (e.Mode == Exclusive || !what.exclusiveOnly) {
			*to = append(*to, e.answer(now))
		}
	}
	n := d.index.locate(path, func(above *node) {
		for _, e := range above.entries {
			if what.parents && e.Depth == Infinity {
				add(&a.Parents, e)
			}
		}
	})
	if n == nil {
		return a
	}
	for _, e := range n.entries {
		add(&a.Same, e)
	}
	slices.SortFunc(a.Same, byAge)
	if what.children {
		n.under(what.exclusiveOnly, func(e *entry) { add(&a.Children, e) })
		slices.SortFunc(a.Children, byPath)
	}
	return a
}

// conflicts finds the live locks that conflict with a request. A lock on the path itself, or
// above it with depth infinity, overlaps every request. A lock below it overlaps a request of
// depth infinity. Of all these, a shared request conflicts only with the exclusive ones.
func (d *document) conflicts(r Request, now interval) Affecting {
	return d.affecting(r.Path, now, scope{
		parents:       true,
		children:      r.Depth == Infinity,
		exclusiveOnly: r.Mode == Shared,
	})
}

// live returns the lock of a token, or nil if there is no such lock or it may have run out.
func (d *document) live(token string, now interval) *Lock {
	e := d.index.tokens[token]
	if e == nil || !e.live(now.Latest) {
		return nil
	}
	return &e.Lock
}

// all returns the live locks, by path.
func (d *document) all(now interval) []Lock {
	var all []Lock
	for _, e := range d.index.tokens {
		if e.live(now.Earliest) {
			all = append(all, e.answer(now))
		}
	}
	slices.SortFunc(all, byPath)
	return all
}

// nextExpiry returns the time until the next lock runs out, at most pollLive.
func (d *document) nextExpiry(now interval) time.Duration {
	if lasting := d.index.expiry[d.index.over(now.Earliest):]; len(lasting) > 0 {
		return min(pollLive, lasting[0].ExpireAt.Sub(now.Earliest)+tick)
	}
	return pollLive
}

// begin is how every write of a lock starts: it removes the locks that ran out and, if the tree is
// watched, logs them in the order in which they ran out.
func (d *document) begin(now interval) {
	d.Log = slices.Delete(d.Log, 0, max(0, len(d.Log)-logLength))
	for _, o := range slices.Clone(d.index.expiry[:d.index.over(now.Earliest)]) {
		d.drop(o.Token)
		d.log(now, Expired, o.Lock, o.ExpireAt)
	}
}

// log adds an event, if the tree is watched. Times in the log never go back, although the clocks of its
// writers differ.
func (d *document) log(now interval, kind Kind, l Lock, at time.Time) {
	if !d.watched(now) {
		return
	}
	if last := len(d.Log) - 1; last >= 0 && d.Log[last].At.After(at) {
		at = d.Log[last].At
	}
	l.Left = 0
	l.Owner = bytes.Clone(l.Owner)
	d.Seq++
	d.Log = append(d.Log, Event{Seq: d.Seq, Kind: kind, At: at, Lock: l})
	d.changed, d.ended = true, true
}

func (d *document) watched(now interval) bool { return d.Watched.After(now.Earliest) }

func byAge(a, b Lock) int {
	return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Token, b.Token))
}

// byPath sorts a path before those below it, and these before its siblings.
func byPath(a, b Lock) int {
	return cmp.Or(comparePaths(a.Path, b.Path), byAge(a, b))
}

func comparePaths(a, b string) int {
	return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
}
