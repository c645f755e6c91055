package filestore

// AtStep has f called after each step of a write.
func (s *Store) AtStep(f func(string)) { s.files.Step = f }
