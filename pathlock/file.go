package pathlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mongolock/mongolock/internal/hostclock"
	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// maxDocument is the size up to which a tree's document takes new locks: half of MongoDB's
// limit, because a refresh or a release must always find room.
const maxDocument = 8 << 20

// A Dir keeps trees as files in a directory, for the processes of one host. A clock of the host
// judges that counts from the host's start, and that cannot be set.
type Dir struct{ trees *files }

// files keep a document in each file.
type files struct {
	disk  *hostfile.Dir
	clock hostclock.Timepiece
	most  int // the size up to which a file takes new locks
}

// InDir opens a directory of trees, and makes it if it does not exist. Give it a directory
// of its own on a local file system, such as one under the user's home: network file systems
// guarantee neither flock nor fsync, and a directory that others may write to is refused.
func InDir(path string) (*Dir, error) {
	clock, err := hostclock.New()
	if err != nil {
		return nil, fmt.Errorf("pathlock: InDir: the host's clock: %w", err)
	}
	disk, err := hostfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("pathlock: InDir: %w", err)
	}
	return &Dir{&files{disk, hostclock.Timepiece{Host: clock, Wall: time.Now}, maxDocument}}, nil
}

func (d *Dir) open(name string, _ *slog.Logger) treeStore {
	return documents{kept: d.trees, name: name}
}

// Close closes the directory. Close the trees first.
func (d *Dir) Close() error { return d.trees.disk.Close() }

// A fileTree is the content of a file, in JSON.
type fileTree struct {
	Pathlock int `json:"pathlock"` // the version of this shape, and the mark that it is ours

	Tree string `json:"tree"`
	hostclock.Stamp
	Locks    []fileLock    `json:"locks"`
	Reserved []reservation `json:"reserved,omitempty"`
}

// A fileLock is a lock in a file.
type fileLock struct {
	Lock
	Moved time.Duration `json:"moved,omitempty"` // by how much its end was moved beyond its date, since the host was started
}

// View shows a tree.
func (d *files) View(ctx context.Context, tree string, look func(*document, interval)) error {
	if err := notStarted(ctx); err != nil {
		return err
	}
	// This needs no file lock, because a file is replaced as a whole.
	f, now, err := d.read(tree)
	if err == nil {
		look(f.doc, now)
	}
	return err
}

// Update changes a tree.
func (d *files) Update(ctx context.Context, tree string, change func(*document, interval)) (time.Time, error) {
	if err := notStarted(ctx); err != nil {
		return time.Time{}, err
	}
	lock, err := d.disk.Lock(ctx, hostfile.Name(tree))
	if err != nil {
		return time.Time{}, fmt.Errorf("pathlock: %w (%w)", err, store.ErrNotApplied)
	}
	defer lock.Unlock()
	f, now, err := d.read(tree)
	if err != nil {
		return time.Time{}, err
	}
	change(f.doc, now)
	if !f.doc.changed && !f.moved {
		return now.Latest, nil
	}
	text, err := f.encode(tree, now)
	if err != nil {
		return time.Time{}, fmt.Errorf("pathlock: %w (%w)", err, store.ErrNotApplied)
	}
	if f.doc.grown && len(text) > max(d.most, f.size) {
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

// A fileSeen is a file as it was read.
type fileSeen struct {
	hostclock.Stamp
	doc   *document
	size  int
	moved bool // its dates were moved, so it must be written
}

// read returns the document in a file, and the time.
func (d *files) read(tree string) (seen fileSeen, now interval, err error) {
	text, err := d.disk.Read(hostfile.Name(tree))
	if err != nil {
		return seen, now, fmt.Errorf("pathlock: %w (%w)", err, store.ErrNotApplied)
	}
	var f fileTree
	if text != nil {
		if err := readTree(text, tree, &f); err != nil {
			return seen, now, err
		}
	}
	shows, moved := f.tell(d.clock)
	// A file keeps milliseconds. A time that is written is rounded up, and the time that judges
	// is rounded down: otherwise a lock would be over up to a millisecond before its time.
	now = interval{Earliest: server.Floor(shows), Latest: server.Ceil(shows)}
	var locks []Lock
	for _, l := range f.Locks {
		l.Lock.moved = l.Moved
		locks = append(locks, l.Lock)
	}
	seen = fileSeen{doc: newDocument(locks...), Stamp: f.Stamp, size: len(text), moved: moved}
	seen.doc.Reserved = f.Reserved
	return seen, now, nil
}

// tell returns the present by a file's time. If the file was written under another boot it moves its dates.
func (f *fileTree) tell(clock hostclock.Timepiece) (now time.Time, moved bool) {
	now, ago, moved := clock.Tell(&f.Stamp)
	if !moved {
		return now, false
	}
	for i := range f.Locks {
		l := &f.Locks[i]
		by := hostclock.MovedBy(ago, &l.Moved)
		l.Since = server.Ceil(l.Since.Add(by))
		if !l.ExpireAt.IsZero() {
			l.ExpireAt = server.Ceil(l.ExpireAt.Add(by))
		}
	}
	return now, true
}

// encode returns the file as it is to be written.
func (s *fileSeen) encode(tree string, now interval) ([]byte, error) {
	f := fileTree{
		Pathlock: 1, Tree: tree, Stamp: hostclock.Stamp{At: now.Earliest, Boot: s.Boot, Zero: s.Zero},
		Locks: []fileLock{}, Reserved: s.doc.Reserved,
	}
	for _, l := range s.doc.all(now) {
		f.Locks = append(f.Locks, fileLock{l, l.moved})
	}
	return json.Marshal(f)
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
