package pathlock

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/hostclock"
	"github.com/mongolock/mongolock/internal/hostfile"
)

// What a storage of documents is made of.
type (
	Documents = keeper
	Document  = document
	Clock     = interval
	Memory    = memory
)

const MaxListed = maxListed

var NewMemory = newMemory

// A kept Storage is that of a keeper.
type kept struct{ keeper }

func (k kept) open(name string, _ *slog.Logger) treeStore {
	return documents{kept: k.keeper, name: name}
}

// OnDocuments makes a Storage of documents.
func OnDocuments(d Documents) (Storage, error) {
	if d == nil {
		return nil, errors.New("no documents")
	}
	return kept{d}, nil
}

// DocumentsOf returns the documents of a Storage, or nil if it has none.
func DocumentsOf(s Storage) Documents {
	d, _ := s.open("any", slog.Default()).(documents)
	return d.kept
}

// OnDisk is a storage on a disk that may be simulated.
func OnDisk(disk hostfile.Disk) *Dir {
	clock, err := hostclock.New()
	if err != nil {
		panic(err)
	}
	return &Dir{&files{hostfile.On(disk), hostclock.Timepiece{Host: clock, Wall: time.Now}, maxDocument}}
}

// Clocked replaces the clock of a host, and the one that can be set.
func (d *Dir) Clocked(host hostclock.Clock, wall func() time.Time) *Dir {
	d.trees.clock = hostclock.Timepiece{Host: host, Wall: wall}
	return d
}

// Limit sets how large a file may grow by new locks.
func (d *Dir) Limit(bytes int) { d.trees.most = bytes }

// Locks returns all locks of a document, those that ran out too.
func (d *document) Locks() (all []Lock) {
	for _, e := range d.tokens {
		all = append(all, e.Lock)
	}
	return all
}

// Put adds a lock to a document.
func (d *document) Put(l Lock) { d.put(l) }

// Copy returns a document that a test may change.
func (d *document) Copy() *document {
	c := newDocument(d.Locks()...)
	c.Reserved = slices.Clone(d.Reserved)
	return c
}
