package pathlock

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/hostclock"
	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/store"
)

// What a storage of documents is made of.
type (
	Documents = keeper
	Document  = document
	Clock     = interval
	Memory    = memory
)

const (
	LogLength = logLength
	MaxListed = maxListed
)

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

// FeedOf returns the feed of a storage.
func FeedOf(s Storage) store.Feed { return s.open("any", slog.Default()).feed() }

// Locks returns all locks of a document.
func (d *document) Locks() []Lock { return d.list() }

// Put adds a lock to a document.
func (d *document) Put(l Lock) { d.put(l) }

// Copy returns a document that a test may change.
func (d *document) Copy() *document {
	c := *d
	c.Log, c.Reserved, c.index = slices.Clone(d.Log), slices.Clone(d.Reserved), newDocument(d.list()...).index
	return &c
}
