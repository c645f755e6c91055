package pathlock

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"
)

// LogLength is how many events a tree's document keeps for those who watch.
const LogLength = 64

// A Document is a tree as its storage has it: the locks, those that ran out and were
// not yet taken away included, and what is kept for those who watch. It is not safe
// for concurrent use.
type Document struct {
	Seq     int64     // of the last event
	Watched time.Time // until then somebody watches or waits
	Log     []Event   // the last ones, oldest first

	index index
}

// NewDocument is a tree with these locks. Without any it is an empty one, which is
// what a tree is that nobody has written.
func NewDocument(locks ...Lock) *Document {
	d := &Document{index: newIndex()}
	for _, l := range locks {
		d.index.put(l)
	}
	return d
}

// Locks yields all there are, in no order. Their owners are not copies.
func (d *Document) Locks() iter.Seq[Lock] {
	return func(yield func(Lock) bool) {
		for _, e := range d.index.tokens {
			if !yield(e.Lock) {
				return
			}
		}
	}
}

// RunsOutBetween reports whether a lock runs out after one time and not after the
// other: then a storage that knows its clock as an interval between these should
// look at it again.
func (d *Document) RunsOutBetween(after, until time.Time) bool {
	found := false
	d.index.until(until, func(e *entry) { found = found || e.ExpireAt.After(after) })
	return found
}

// An Edit is what one request changes in a tree, in one step.
type Edit struct {
	Drop    []string  // tokens; first
	Put     []Lock    // new, or in place of the one with the same token
	Events  []Event   // to be added to the log
	Watched time.Time // if later than the document's
	Touch   bool      // write, and make the revision new, even if nothing else changes
}

// Empty reports whether there is nothing to write.
func (e Edit) Empty() bool {
	return len(e.Drop) == 0 && len(e.Put) == 0 && len(e.Events) == 0 && e.Watched.IsZero() && !e.Touch
}

// Apply makes the change.
func (d *Document) Apply(e Edit) {
	for _, token := range e.Drop {
		d.index.drop(token)
	}
	for _, l := range e.Put {
		d.index.put(l)
	}
	for _, event := range e.Events {
		d.Log = append(d.Log, event)
		d.Seq = event.Seq
	}
	if over := len(d.Log) - LogLength; over > 0 {
		d.Log = slices.Delete(d.Log, 0, over)
	}
	if e.Watched.After(d.Watched) {
		d.Watched = e.Watched
	}
}

// adds reports whether an edit brings a lock that was not there.
func (d *Document) adds(e Edit) bool {
	return slices.ContainsFunc(e.Put, func(l Lock) bool { return d.index.tokens[l.Token] == nil })
}

// list is all locks, in the order in which they are written.
func (d *Document) list() []Lock { return slices.SortedFunc(d.Locks(), byPath) }

// affecting finds the locks around a path that count now.
func (d *Document) affecting(path string, now Clock, what scope) (a Affecting) {
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

// A scope says where affecting looks, beside the path itself.
type scope struct{ parents, children, exclusiveOnly bool }

// conflicts are the locks in the way of a request. On the path itself and above it
// those of depth infinity overlap with any request; below it, with one that reaches
// down. Of these a shared request conflicts with the exclusive ones.
func (d *Document) conflicts(r Request, now Clock) Affecting {
	return d.affecting(r.Path, now, scope{
		parents:       true,
		children:      r.Depth == Infinity,
		exclusiveOnly: r.Mode == Shared,
	})
}

// live is the lock of a token, nil if there is none or it may have run out.
func (d *Document) live(token string, now Clock) *Lock {
	e := d.index.tokens[token]
	if e == nil || !e.live(now.Latest) {
		return nil
	}
	return &e.Lock
}

// all are the locks that count now, by path.
func (d *Document) all(now Clock) []Lock {
	var all []Lock
	for _, e := range d.index.tokens {
		if e.live(now.Earliest) {
			all = append(all, e.answer(now))
		}
	}
	slices.SortFunc(all, byPath)
	return all
}

// begin is the edit with which every write starts: what has run out is taken away
// and, if somebody watches, logged, the first to run out first.
func (d *Document) begin(now Clock) Edit {
	var e Edit
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

// log adds an event to an edit, if somebody watches. Times never go back in it,
// though the clocks of those who write differ.
func (d *Document) log(e *Edit, now Clock, kind Kind, l Lock, at time.Time) {
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

func (d *Document) sortLog() {
	slices.SortFunc(d.Log, func(a, b Event) int { return cmp.Compare(a.Seq, b.Seq) })
}

func (d *Document) watched(now Clock) bool { return d.Watched.After(now.Earliest) }

func byAge(a, b Lock) int {
	return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Token, b.Token))
}

// byPath puts a path before those below it, and these before its siblings.
func byPath(a, b Lock) int {
	return cmp.Or(comparePaths(a.Path, b.Path), byAge(a, b))
}

func comparePaths(a, b string) int {
	return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
}
