package pathlock

import (
	"time"

	"github.com/mongolock/mongolock/internal/hostclock"
	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/store"
)

// OnDisk is a storage on a disk that may be simulated.
func OnDisk(disk hostfile.Disk) *Dir {
	clock, err := hostclock.New()
	if err != nil {
		panic(err)
	}
	return &Dir{files: hostfile.On(disk), clock: timepiece{clock, time.Now}, most: maxDocument}
}

// Clocked replaces the clock of a host, and the one that can be set.
func (d *Dir) Clocked(host hostclock.Clock, wall func() time.Time) *Dir {
	d.clock = timepiece{host, wall}
	return d
}

// Limit sets how large a file may grow by new locks.
func (d *Dir) Limit(bytes int) { d.most = bytes }

// FeedOf returns the feed of a storage.
func FeedOf(s Storage) store.Feed { return s.open("any").feed() }
