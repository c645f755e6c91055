package filestore

import (
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
)

// On returns a store on a disk that may be simulated.
func On(disk hostfile.Disk) *Store { return &Store{files: hostfile.On(disk), clock: time.Now} }
