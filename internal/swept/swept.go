// Package swept keeps maps small whose entries are not removed otherwise.
package swept

import "maps"

// least is the number of entries from which on a map is swept.
const least = 64

// A Map is a map that is swept before it grows: so it has at most twice as many entries as were
// alive at the last sweep, and a sweep costs little for each entry. The zero Map is empty. It is
// not safe for concurrent use.
type Map[K comparable, V any] struct {
	All map[K]V // to be read, and to delete from
	at  int     // the number of entries at which it is swept next
}

// Put sets an entry. If the map is due for it, those that are dead are taken out first.
func (m *Map[K, V]) Put(key K, value V, dead func(K, V) bool) {
	if m.All == nil {
		m.All = make(map[K]V)
	}
	if len(m.All) >= max(least, m.at) {
		maps.DeleteFunc(m.All, dead)
		m.at = 2 * len(m.All)
	}
	m.All[key] = value
}
