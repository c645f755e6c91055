package mongolock

// holdings are those of a client that are not settled. They are protected by the mu of the queues.
type holdings struct {
	first *holding
	none  chan struct{} // closed when there are none; made by emptied
}

func (all *holdings) add(h *holding) {
	if h.next = all.first; h.next != nil {
		h.next.prev = h
	}
	all.first = h
}

// remove reports whether h was there.
func (all *holdings) remove(h *holding) bool {
	switch {
	case h.prev != nil:
		h.prev.next = h.next
	case all.first == h:
		all.first = h.next
	default:
		return false
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.prev, h.next = nil, nil
	if all.first == nil && all.none != nil {
		close(all.none)
		all.none = nil
	}
	return true
}

func (all *holdings) list() (hs []*holding) {
	for h := all.first; h != nil; h = h.next {
		hs = append(hs, h)
	}
	return hs
}

// emptied returns a channel that is closed once there are no holdings.
func (all *holdings) emptied() <-chan struct{} {
	none := all.none
	if none == nil {
		none = make(chan struct{})
		if all.first == nil {
			close(none)
		} else {
			all.none = none
		}
	}
	return none
}
