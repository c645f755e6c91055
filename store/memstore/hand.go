package memstore

// What follows stands for somebody with a shell on the database.

// Put puts something that is not of this library under a key, in place of
// whatever was there. From then on the key answers store.ErrForeign.
func (s *Store) Put(key string, content any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[key] = &record{foreign: true, content: content}
}

// Foreign returns what Put left under a key; ok is false where there is no
// foreign record.
func (s *Store) Foreign(key string) (content any, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[key]
	if rec == nil || !rec.foreign {
		return nil, false
	}
	return rec.content, true
}

// Delete removes what is under a key, foreign or not. Its holder learns of it at
// its next renewal; no watcher is told.
func (s *Store) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, key)
}
