package pathlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/mongoclock"
	"github.com/mongolock/mongolock/store"
)

// maxDocument is how large a tree's document may become by new locks: half of what
// MongoDB takes, since what is added to one that is there must always find room.
const maxDocument = 8 << 20

// A Dir keeps trees as files in a directory of one host, for the processes of that
// host. Their clock is the host's.
type Dir struct {
	files *hostfile.Dir
	clock func() time.Time
	most  int // how many bytes a file may grow to by new locks
}

// InDir is a storage in a directory, which is made if need be. Give it a directory of
// its own on a local file system: over a network neither locks nor syncs are sure.
func InDir(path string) (*Dir, error) {
	files, err := hostfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("pathlock: InDir: %w", err)
	}
	return &Dir{files: files, clock: time.Now, most: maxDocument}, nil
}

// Close lets go of the directory. Close the trees first.
func (d *Dir) Close() error { return d.files.Close() }

// The text of a file: the document in JSON.
type fileTree struct {
	Pathlock int       `json:"pathlock"` // the version of this shape, and the mark that it is ours
	Tree     string    `json:"tree"`
	At       time.Time `json:"at"` // the host's clock when it was written
	Seq      int64     `json:"seq"`
	Watched  time.Time `json:"watchedUntil,omitzero"`
	Locks    []Lock    `json:"locks"`
	Log      []Event   `json:"log,omitempty"`
}

// View shows a tree.
func (d *Dir) View(ctx context.Context, tree string, look func(*Document, Clock)) error {
	if err := notStarted(ctx); err != nil {
		return err
	}
	// No lock: a file is replaced as a whole.
	doc, now, _, err := d.read(tree)
	if err == nil {
		look(doc, now)
	}
	return err
}

// Update changes a tree.
func (d *Dir) Update(ctx context.Context, tree string, change func(*Document, Clock) (Edit, error)) (time.Time, error) {
	if err := notStarted(ctx); err != nil {
		return time.Time{}, err
	}
	unlock, err := d.files.Lock(ctx, hostfile.Name(tree))
	if err != nil {
		return time.Time{}, fmt.Errorf("pathlock: %w (%w)", err, store.ErrNotApplied)
	}
	defer unlock()
	doc, now, size, err := d.read(tree)
	if err != nil {
		return time.Time{}, err
	}
	edit, err := change(doc, now)
	if err != nil || edit.Empty() {
		return now.Latest, err
	}
	added := doc.adds(edit)
	doc.Apply(edit)
	text, err := json.Marshal(fileTree{
		Pathlock: 1, Tree: tree, At: now.Latest, Seq: doc.Seq, Watched: doc.Watched, Locks: doc.list(), Log: doc.Log,
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("pathlock: %w (%w)", err, store.ErrNotApplied)
	}
	if added && len(text) > max(d.most, size) {
		return time.Time{}, fmt.Errorf("%w: %q would have %d bytes, more than %d", ErrTooLarge, tree, len(text), d.most)
	}
	if applied, err := d.files.Write(hostfile.Name(tree), text); err != nil {
		if !applied {
			err = fmt.Errorf("%w (%w)", err, store.ErrNotApplied)
		}
		return time.Time{}, fmt.Errorf("pathlock: %w", err)
	}
	return now.Latest, nil
}

// read is the document of a file, and the time: the host's, but never before the one
// at which the file was written. (A clock that was set back makes locks last longer,
// not come back.)
func (d *Dir) read(tree string) (doc *Document, now Clock, size int, err error) {
	text, err := d.files.Read(hostfile.Name(tree))
	shows := d.clock().Round(0).UTC()
	// A file keeps milliseconds. What is written is rounded up, and what judges down: or a
	// lock would be over up to a millisecond before its time.
	now = Clock{Earliest: mongoclock.Floor(shows), Latest: mongoclock.Ceil(shows)}
	if err != nil {
		return nil, now, 0, fmt.Errorf("pathlock: %w (%w)", err, store.ErrNotApplied)
	}
	if text == nil {
		return NewDocument(), now, 0, nil
	}
	var f fileTree
	if err := readTree(text, tree, &f); err != nil {
		return nil, now, 0, err
	}
	if f.At.After(now.Latest) {
		now = Clock{f.At, f.At}
	}
	doc = NewDocument(f.Locks...)
	doc.Seq, doc.Watched, doc.Log = f.Seq, f.Watched, f.Log
	return doc, now, len(text), nil
}

// readTree refuses what this version did not write.
func readTree(text []byte, tree string, f *fileTree) error {
	refuse := func(why string) error {
		return fmt.Errorf("%w: the file of the tree %q: %s", ErrForeign, tree, why)
	}
	switch err := json.Unmarshal(text, f); { // which goes on after a field that is of another kind
	case f.Pathlock != 0 && f.Pathlock != 1:
		return refuse(fmt.Sprintf(`"pathlock" is %d, not 1`, f.Pathlock))
	case err != nil:
		return refuse("not JSON of ours: " + err.Error())
	case f.Pathlock == 0:
		return refuse(`no "pathlock" in it`)
	case f.Tree != tree:
		return refuse(fmt.Sprintf("it is that of %q", f.Tree))
	}
	for _, l := range f.Locks {
		if err := l.check(); err != nil {
			return refuse(err.Error())
		}
	}
	return nil
}

// check refuses a lock that this package did not write.
func (l Lock) check() error {
	if path, err := Clean(l.Path); err != nil || path != l.Path {
		return fmt.Errorf("a lock of %.100q", l.Path)
	}
	r := Request{Mode: l.Mode, Depth: l.Depth, Owner: l.Owner, Timeouts: []time.Duration{l.Timeout}}
	if err := r.check(); err != nil {
		return fmt.Errorf("the lock of %.100q: %w", l.Path, err)
	}
	if l.Token == "" || l.ExpireAt.IsZero() != (l.Timeout == Infinite) {
		return errors.New("a lock without its token or its time")
	}
	return nil
}
