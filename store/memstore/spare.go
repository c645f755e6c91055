package memstore

import "slices"

// The record of the key that was released last is used again. Without that an acquire and
// release makes two more allocations, and takes half a hand-off between goroutines longer.

// blank puts an empty record under a key. No record leaves this package, so the
// spare one can be used again.
func (s *Store) blank(key string) *record {
	rec := s.spend()
	if rec == nil {
		rec = new(record)
	}
	s.records[key] = rec
	return rec
}

// spend takes the spare record from its key, and returns nil if there is no spare.
func (s *Store) spend() *record {
	rec := s.spare
	if s.spare = nil; rec != nil && s.records[s.spared] == rec { // otherwise Put or Delete took it from its key
		delete(s.records, s.spared)
	}
	return rec
}

// drop removes a holder.
func (s *Store) drop(key string, rec *record, id string) {
	if i := rec.index(id); i >= 0 {
		rec.holders, rec.freed = slices.Delete(rec.holders, i, i+1), s.clock()
	}
	s.tidy(key, rec)
}

// tidy removes a record that has neither holders nor a line.
func (s *Store) tidy(key string, rec *record) {
	if len(rec.holders) > 0 || len(rec.line) > 0 {
		return
	}
	s.spend()
	*rec = record{holders: rec.holders[:0], line: rec.line[:0]}
	s.spare, s.spared = rec, key
}
