package pathlock

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// An index finds the locks of a tree by path, by token and by expiry, without a scan of
// all of them.
type index struct {
	root   *node
	tokens map[string]*entry
	expiry []*entry // those that end, by their end
}

// A node is a path with locks on it or below it.
type node struct {
	parent   *node
	name     string
	children map[string]*node
	entries  []*entry

	// The number of locks on this node and below, so that a search skips the parts of the tree
	// that have none.
	all, exclusive int
}

// An entry is one lock, with its place in the tree.
type entry struct {
	Lock
	node *node
}

// put adds a lock, or replaces the one with the same token.
func (x *index) put(l Lock) {
	x.drop(l.Token)
	n := x.root
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
	x.tokens[l.Token] = e
	if !l.ExpireAt.IsZero() {
		at, _ := slices.BinarySearchFunc(x.expiry, e, byEnd)
		x.expiry = slices.Insert(x.expiry, at, e)
	}
}

// drop removes a lock, and the nodes that existed only for it.
func (x *index) drop(token string) {
	e := x.tokens[token]
	if e == nil {
		return
	}
	delete(x.tokens, token)
	if !e.ExpireAt.IsZero() {
		at, _ := slices.BinarySearchFunc(x.expiry, e, byEnd)
		x.expiry = slices.Delete(x.expiry, at, at+1)
	}
	n := e.node
	at := slices.Index(n.entries, e)
	n.entries = slices.Delete(n.entries, at, at+1)
	n.count(&e.Lock, -1)
	for n.parent != nil && n.all == 0 {
		delete(n.parent.children, n.name)
		n = n.parent
	}
}

func (n *node) count(l *Lock, by int) {
	for ; n != nil; n = n.parent {
		n.all += by
		if l.Mode == Exclusive {
			n.exclusive += by
		}
	}
}

// locate returns the node of a clean path, or nil if no lock is on it or below. It calls
// pass for every node above it.
func (x *index) locate(path string, pass func(*node)) *node {
	n := x.root
	for name := range segments(path) {
		pass(n)
		if n = n.children[name]; n == nil {
			return nil
		}
	}
	return n
}

// under calls visit for every entry below n, in no order.
func (n *node) under(exclusiveOnly bool, visit func(*entry)) {
	for _, child := range n.children {
		if child.exclusive == 0 && exclusiveOnly {
			continue
		}
		for _, e := range child.entries {
			visit(e)
		}
		child.under(exclusiveOnly, visit)
	}
}

// byEnd is the order of expiry: by the end, and then by the token.
func byEnd(a, b *entry) int {
	return cmp.Or(a.ExpireAt.Compare(b.ExpireAt), strings.Compare(a.Token, b.Token))
}

// over returns how many entries of expiry have run out at t.
func (x *index) over(t time.Time) int {
	n, _ := slices.BinarySearchFunc(x.expiry, t, func(e *entry, t time.Time) int {
		if e.ExpireAt.After(t) {
			return 1
		}
		return -1
	})
	return n
}
