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
	Log     []Event   // the last events, oldest first

	Reserved []reservation // by exclusive waiters

	index index
}

// newDocument makes a tree without locks, as one is that was never written to.
func newDocument() *document { return &document{index: newIndex()} }

// An edit is the change that one request makes to a tree, in one step.
type edit struct {
	Drop    []string  // tokens; removed before Put is applied
	Put     []Lock    // new locks, or those that replace the lock with the same token
	Events  []Event   // added to the log
	Seq     int64     // counts if it is greater than the document's: then events are missing in the log
	Watched time.Time // counts if it is later than the document's
	Touch   bool      // write a new revision even if nothing else changes

	Reserve   *reservation // added, or replaces the one with the same ID
	Unreserve []string     // the IDs of reservations; removed
}

// empty reports whether there is nothing to write.
func (e edit) empty() bool {
	return len(e.Drop) == 0 && len(e.Put) == 0 && len(e.Events) == 0 && e.Watched.IsZero() && !e.Touch &&
		e.Reserve == nil && len(e.Unreserve) == 0
}

// apply makes the change.
func (d *document) apply(e edit) {
	for _, token := range e.Drop {
		d.index.drop(token)
	}
	for _, l := range e.Put {
		d.index.put(l)
	}
	d.Seq = max(d.Seq, e.Seq)
	for _, event := range e.Events {
		d.Log = append(d.Log, event)
		d.Seq = event.Seq
	}
	if over := len(d.Log) - logLength; over > 0 {
		d.Log = slices.Delete(d.Log, 0, over)
	}
	if e.Watched.After(d.Watched) {
		d.Watched = e.Watched
	}
	d.Reserved = slices.DeleteFunc(d.Reserved, func(v reservation) bool {
		return slices.Contains(e.Unreserve, v.ID) || e.Reserve != nil && e.Reserve.ID == v.ID
	})
	if e.Reserve != nil {
		d.Reserved = append(d.Reserved, *e.Reserve)
	}
}

// reserved reports whether a waiter has a reservation.
func (d *document) reserved(id string) bool {
	return slices.ContainsFunc(d.Reserved, func(v reservation) bool { return v.ID == id })
}

// adds reports whether an edit adds a lock.
func (d *document) adds(e edit) bool {
	return slices.ContainsFunc(e.Put, func(l Lock) bool { return d.index.tokens[l.Token] == nil })
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
	next := pollLive
	d.index.first(now.Earliest, func(e *entry) {
		next = min(next, max(tick, e.ExpireAt.Sub(now.Earliest)+tick))
	})
	return next
}

// begin makes the edit with which every write starts: it removes the locks that ran out and, if
// the tree is watched, logs them in the order in which they ran out.
func (d *document) begin(now interval) edit {
	var e edit
	var over []*entry
	d.index.until(now.Earliest, func(o *entry) { over = append(over, o) })
	slices.SortFunc(over, func(a, b *entry) int {
		return cmp.Or(a.ExpireAt.Compare(b.ExpireAt), strings.Compare(a.Token, b.Token))
	})
	for _, o := range over {
		e.Drop = append(e.Drop, o.Token)
		d.log(&e, now, Expired, o.Lock, o.ExpireAt)
	}
	return e
}

// log adds an event to an edit, if the tree is watched. Times in the log never go back,
// although the clocks of its writers differ.
func (d *document) log(e *edit, now interval, kind Kind, l Lock, at time.Time) {
	if !d.watched(now) {
		return
	}
	seq := d.Seq
	last := d.Log
	if len(e.Events) > 0 {
		seq, last = e.Events[len(e.Events)-1].Seq, e.Events
	}
	if len(last) > 0 && last[len(last)-1].At.After(at) {
		at = last[len(last)-1].At
	}
	l.Left = 0
	l.Owner = bytes.Clone(l.Owner)
	e.Events = append(e.Events, Event{Seq: seq + 1, Kind: kind, At: at, Lock: l})
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
