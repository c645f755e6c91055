package pathlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/mongo/mongoclock"
	"github.com/mongolock/mongolock/store"
)

// maxDocument is the size up to which a tree's document takes new locks: half of MongoDB's
// limit, because a refresh or a release must always find room.
const maxDocument = 8 << 20

// A Dir keeps trees as files in a directory, for the processes of one host. The host's
// clock judges.
type Dir struct {
	files *hostfile.Dir
	clock func() time.Time
	most  int // the size up to which a file takes new locks
}

// InDir opens a directory of trees, and makes it if it does not exist. Give it a directory
// of its own on a local file system: network file systems guarantee neither flock nor
// fsync.
func InDir(path string) (*Dir, error) {
	files, err := hostfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("pathlock: InDir: %w", err)
	}
	return &Dir{files: files, clock: time.Now, most: maxDocument}, nil
}

func (d *Dir) open(name string) engine { return documents{d, name} }

// Close closes the directory. Close the trees first.
func (d *Dir) Close() error { return d.files.Close() }

// A fileTree is the content of a file, in JSON.
type fileTree struct {
	Pathlock int       `json:"pathlock"` // the version of this shape, and the mark that it is ours
	Tree     string    `json:"tree"`
	At       time.Time `json:"at"` // the host's clock at the write
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
	// This needs no file lock, because a file is replaced as a whole.
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
	lock, err := d.files.Lock(ctx, hostfile.Name(tree))
	if err != nil {
		return time.Time{}, fmt.Errorf("pathlock: %w (%w)", err, store.ErrNotApplied)
	}
	defer lock.Unlock()
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
	if applied, err := lock.Write(hostfile.Name(tree), text); err != nil {
		if !applied {
			err = fmt.Errorf("%w (%w)", err, store.ErrNotApplied)
		}
		return time.Time{}, fmt.Errorf("pathlock: %w", err)
	}
	return now.Latest, nil
}

// read returns the document in a file, and the time: the host's, but never before the time of
// the last write. (A clock that is set back makes locks last longer; it does not revive them.)
func (d *Dir) read(tree string) (doc *Document, now Clock, size int, err error) {
	text, err := d.files.Read(hostfile.Name(tree))
	shows := d.clock().Round(0).UTC()
	// A file keeps milliseconds. A time that is written is rounded up, and the time that judges
	// is rounded down: otherwise a lock would be over up to a millisecond before its time.
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

// readTree refuses a file that this version did not write.
func readTree(text []byte, tree string, f *fileTree) error {
	refuse := func(why string) error {
		return fmt.Errorf("%w: the file of the tree %q: %s", ErrForeign, tree, why)
	}
	switch err := json.Unmarshal(text, f); { // Unmarshal goes on after a field of another kind
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
