package engine

// A heap keeps items in an order; items[0] is the first. Each knows its index.
type heap[T any] struct {
	items  []T
	before func(a, b T) bool
	index  func(T) *int // where an item keeps its index; -1: it is in no heap
}

func (h *heap[T]) push(x T) {
	h.items = append(h.items, x)
	*h.index(x) = len(h.items) - 1
	h.fix(x)
}

// take removes the first item.
func (h *heap[T]) take() T {
	x := h.items[0]
	h.remove(x)
	return x
}

func (h *heap[T]) remove(x T) {
	at, last := *h.index(x), len(h.items)-1
	moved := h.items[last]
	h.put(at, moved)
	clear(h.items[last:])
	h.items = h.items[:last]
	*h.index(x) = -1
	if at < last {
		h.fix(moved)
	}
}

// fix moves an item to where it belongs by now.
func (h *heap[T]) fix(x T) {
	at := *h.index(x)
	for up := (at - 1) / 2; at > 0 && h.before(x, h.items[up]); up = (at - 1) / 2 {
		h.put(at, h.items[up])
		at = up
	}
	for down := 2*at + 1; down < len(h.items); down = 2*at + 1 {
		if down+1 < len(h.items) && h.before(h.items[down+1], h.items[down]) {
			down++
		}
		if !h.before(h.items[down], x) {
			break
		}
		h.put(at, h.items[down])
		at = down
	}
	h.put(at, x)
}

func (h *heap[T]) put(at int, x T) {
	h.items[at] = x
	*h.index(x) = at
}
