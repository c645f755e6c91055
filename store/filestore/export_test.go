package filestore

import (
	"time"

	"github.com/mongolock/mongolock/internal/hostclock"
	"github.com/mongolock/mongolock/internal/hostfile"
)

// On returns a store on a disk that may be simulated.
func On(disk hostfile.Disk) *Store {
	clock, err := hostclock.New()
	if err != nil {
		panic(err)
	}
	return &Store{hostfile.On(disk), timepiece{clock, time.Now}}
}

// Clocked replaces the clock of a host, and the one that can be set.
func (s *Store) Clocked(host hostclock.Clock, wall func() time.Time) *Store {
	s.clock = timepiece{host, wall}
	return s
}
