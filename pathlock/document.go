package pathlock

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A document is a tree as a storage keeps it: the locks, including those that ran out and were
// not removed yet, and the reservations. It finds locks by path, by token and by expiry, without a
// scan of all of them. It is not safe for concurrent use.
type document struct {
	Reserved []reservation // by exclusive waiters

	root   *node
	tokens map[string]*entry
	expiry []*entry // those that end, by their end

	changed bool // there is something to write
	grown   bool // a lock was added
}

// newDocument makes a tree of some locks: without any, as one is that was never written to.
func newDocument(locks ...Lock) *document {
	d := &document{root: &node{}, tokens: make(map[string]*entry)}
	slices.SortFunc(locks, func(a, b Lock) int { return a.ExpireAt.Compare(b.ExpireAt) }) // expiry grows at its end
	for _, l := range locks {
		d.put(l)
	}
	d.changed, d.grown = false, false
	return d
}

// put adds a lock, or replaces the one with the same token.
func (d *document) put(l Lock) {
	replaced := d.drop(l.Token)
	d.changed, d.grown = true, d.grown || !replaced
	n := d.root
	for name := range segments(l.Path) {
		child := n.children[name]
		if child == nil {
			child = &node{parent: n, name: name}
			if n.children == nil {
				n.children = make(map[string]*node)
			}
			n.children[name] = child
		}
		n = child
	}
	e := &entry{Lock: l, node: n}
	n.entries = append(n.entries, e)
	n.count(&e.Lock, 1)
	d.tokens[l.Token] = e
	if !l.ExpireAt.IsZero() {
		at, _ := slices.BinarySearchFunc(d.expiry, e, byEnd)
		d.expiry = slices.Insert(d.expiry, at, e)
	}
}

// drop removes a lock, and the nodes that existed only for it. It reports whether the lock was there.
func (d *document) drop(token string) bool {
	e := d.tokens[token]
	if e == nil {
		return false
	}
	delete(d.tokens, token)
	if !e.ExpireAt.IsZero() {
		at, _ := slices.BinarySearchFunc(d.expiry, e, byEnd)
		d.expiry = slices.Delete(d.expiry, at, at+1)
	}
	n := e.node
	at := slices.Index(n.entries, e)
	n.entries = slices.Delete(n.entries, at, at+1)
	n.count(&e.Lock, -1)
	for n.parent != nil && n.all == 0 {
		delete(n.parent.children, n.name)
		n = n.parent
	}
	d.changed = true
	return true
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

// A scope says where affecting looks, in addition to the path itself.
type scope struct{ parents, children, exclusiveOnly bool }

// affecting finds the live locks around a path.
func (d *document) affecting(path string, now interval, what scope) (a Affecting) {
	add := func(to *[]Lock, e *entry) {
		if e.live(now.Earliest) && (e.Mode == Exclusive || !what.exclusiveOnly) {
			*to = append(*to, e.answer(now))
		}
	}
	n := d.locate(path, func(above *node) {
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
	e := d.tokens[token]
	if e == nil || !e.live(now.Latest) {
		return nil
	}
	return &e.Lock
}

// all returns the live locks, by path.
func (d *document) all(now interval) []Lock {
	var all []Lock
	for _, e := range d.tokens {
		if e.live(now.Earliest) {
			all = append(all, e.answer(now))
		}
	}
	slices.SortFunc(all, byPath)
	return all
}

// sweep removes the locks that ran out.
func (d *document) sweep(now interval) {
	for _, o := range slices.Clone(d.expiry[:d.over(now.Earliest)]) {
		d.drop(o.Token)
	}
}

// over returns how many locks have run out at t.
func (d *document) over(t time.Time) int {
	n, _ := slices.BinarySearchFunc(d.expiry, t, func(e *entry, t time.Time) int {
		if e.ExpireAt.After(t) {
			return 1
		}
		return -1
	})
	return n
}

// locate returns the node of a clean path, or nil if no lock is on it or below. It calls
// pass for every node above it.
func (d *document) locate(path string, pass func(*node)) *node {
	n := d.root
	for name := range segments(path) {
		pass(n)
		if n = n.children[name]; n == nil {
			return nil
		}
	}
	return n
}

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
