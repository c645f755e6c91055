package memstore

// These methods stand for an operator with a shell on the database.

// Put replaces the record of a key with content that is not of this library. From
// then on the key answers store.ErrForeign.
func (s *Store) Put(key string, content any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[key] = &record{foreign: true, content: content}
}

// Foreign returns the content that Put left under a key, with ok false if the key has
// no foreign record.
func (s *Store) Foreign(key string) (content any, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[key]
	if rec == nil || !rec.foreign {
		return nil, false
	}
	return rec.content, true
}

// Delete removes the record of a key, foreign or not. A holder learns of it at its
// next renewal; watchers are not told.
func (s *Store) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, key)
}
