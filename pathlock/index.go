package pathlock

import (
	"container/heap"
	"time"
)

// An index finds the locks of a tree by path, by token and by expiry, without a scan of
// all of them.
type index struct {
	root   *node
	tokens map[string]*entry
	expiry expiryHeap
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

// An entry is one lock, with its places in the index.
type entry struct {
	Lock
	node *node
	pos  int // in the heap
}

func newIndex() index {
	return index{root: &node{}, tokens: make(map[string]*entry)}
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
		heap.Push(&x.expiry, e)
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
		heap.Remove(&x.expiry, e.pos)
	}
	n := e.node
	for i, other := range n.entries {
		if other == e {
			n.entries = append(n.entries[:i], n.entries[i+1:]...)
			break
		}
	}
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

// until calls visit for every entry that runs out at t or before, in no order.
func (x *index) until(t time.Time, visit func(*entry)) {
	var from func(i int)
	from = func(i int) {
		if i < len(x.expiry) && !x.expiry[i].ExpireAt.After(t) {
			visit(x.expiry[i])
			from(2*i + 1)
			from(2*i + 2)
		}
	}
	from(0)
}

// first calls visit for the entry that is the first to run out after t, and for a few others.
func (x *index) first(t time.Time, visit func(*entry)) {
	var from func(i int)
	from = func(i int) {
		switch {
		case i >= len(x.expiry):
		case x.expiry[i].ExpireAt.After(t):
			visit(x.expiry[i]) // those below it run out later
		default:
			from(2*i + 1)
			from(2*i + 2)
		}
	}
	from(0)
}

// An expiryHeap has the lock that runs out first at its top.
type expiryHeap []*entry

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].ExpireAt.Before(h[j].ExpireAt) }
func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

// Push and Pop belong to container/heap.
func (h *expiryHeap) Push(x any) {
	e := x.(*entry)
	e.pos = len(*h)
	*h = append(*h, e)
}

func (h *expiryHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
