package history

import (
	"cmp"
	"slices"
	"time"
)

const never = time.Duration(1<<63 - 1)

// A lease is what became of one acquisition.
type lease struct {
	id, key string
	client  int
	token   int64
	resumed bool
	mode    Mode
	note    string

	applied, granted, told, letGo, dropped, until time.Duration // never if it did not happen
	looked                                        time.Duration // the last look that said it is held
}

// leases returns the acquisitions of a history, in order of appearance.
func (h *History) leases() []*lease {
	byID := map[string]*lease{}
	var all []*lease
	of := func(e Event) *lease {
		l := byID[e.ID]
		if l == nil {
			l = &lease{id: e.ID, key: e.Key, client: e.Client, applied: never, granted: never, told: never, letGo: never, dropped: never}
			byID[e.ID] = l
			all = append(all, l)
		}
		return l
	}
	for _, e := range h.Events {
		if e.ID == "" {
			continue
		}
		switch e.Kind {
		case Granted:
			l := of(e)
			l.granted, l.token, l.resumed, l.client, l.mode = e.At, e.Token, e.Note == Resumed, e.Client, e.Mode
		case Told:
			of(e).told = min(of(e).told, e.At)
		case Looked:
			of(e).looked = e.At
		case LetGo:
			l := of(e)
			l.letGo = min(l.letGo, e.At)
			l.note = e.Note
		case Applied:
			l := of(e)
			l.applied = min(l.applied, e.At)
			l.until = e.Until
		case Extended, Shortened:
			of(e).until = e.Until
		case Dropped:
			of(e).dropped = min(of(e).dropped, e.At)
		}
	}
	if h.NoDB {
		for _, l := range all {
			l.told = max(l.looked, l.granted) // Done was not observed; the lease was surely not over before
		}
	}
	return all
}

// byID returns the acquisitions by ID.
func (h *History) byID() map[string]*lease {
	leases := map[string]*lease{}
	for _, l := range h.leases() {
		leases[l.id] = l
	}
	return leases
}

// byKey returns the leases that a caller was given, by key and in the order of their grants.
func (h *History) byKey() map[string][]*lease {
	keys := map[string][]*lease{}
	for _, l := range h.leases() {
		if l.granted != never {
			keys[l.key] = append(keys[l.key], l)
		}
	}
	for _, list := range keys {
		slices.SortStableFunc(list, func(a, b *lease) int { return cmp.Compare(a.starts(), b.starts()) })
	}
	return keys
}

// ends is when the holder believed its lease to be over.
func (l *lease) ends() time.Duration { return min(l.told, l.letGo) }

// starts is from when on no other client may believe that it holds the key. The database
// shows the holder before the holder knows.
func (l *lease) starts() time.Duration { return min(l.applied, l.granted) }

// leaves is when the database no longer counted the holder.
func (l *lease) leaves() time.Duration { return min(l.dropped, l.until) }
