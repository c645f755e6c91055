package filestore

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/hostclock"
	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/record"
)

// On returns a store on a disk that may be simulated.
func On(disk hostfile.Disk) *Store {
	clock, err := hostclock.New()
	if err != nil {
		panic(err)
	}
	return &Store{hostfile.On(disk), hostclock.Timepiece{Host: clock, Wall: time.Now}}
}

// Age makes a place in line older.
func (s *Store) Age(key string, p store.Place, by time.Duration) error {
	_, err := edit(context.Background(), s, store.Ref{Key: key, Mode: store.Exclusive}, func(k *record.Key, _ time.Time) (bool, error) {
		for i := range k.Line {
			if w := &k.Line[i]; w.Place == p {
				w.Seen = w.Seen.Add(-by)
			}
		}
		return true, nil
	})
	return err
}

// Clocked replaces the clock of a host, and the one that can be set.
func (s *Store) Clocked(host hostclock.Clock, wall func() time.Time) *Store {
	s.clock = hostclock.Timepiece{Host: host, Wall: wall}
	return s
}
