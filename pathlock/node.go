package pathlock

import (
	"cmp"
	"strings"
)

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

func (n *node) count(l *Lock, by int) {
	for ; n != nil; n = n.parent {
		n.all += by
		if l.Mode == Exclusive {
			n.exclusive += by
		}
	}
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
