package filestore

import (
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
)

// On is a store on a disk that may be no real one.
func On(disk hostfile.Disk) *Store { return &Store{files: hostfile.On(disk), clock: time.Now} }
