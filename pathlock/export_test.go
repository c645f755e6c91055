package pathlock

import (
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/store"
)

// OnDisk is a storage on a disk that may be simulated.
func OnDisk(disk hostfile.Disk) *Dir {
	return &Dir{files: hostfile.On(disk), clock: time.Now, most: maxDocument}
}

// Limit sets how large a file may grow by new locks.
func (d *Dir) Limit(bytes int) { d.most = bytes }

// FeedOf returns the feed of a storage.
func FeedOf(s Storage) store.Feed { return s.open("any").feed() }
