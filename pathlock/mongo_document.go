package pathlock

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/server"
)

// The document of a lock:
//
//	{ _id: "urn:uuid:…",            // the token
//	  pathlock: 3, tree: "files",   // the version of this shape, and the mark that it is ours
//	  path, mode, depth, timeout, owner,
//	  since: Date, until: Date,     // when it was added, and when it runs out
//	  on: Long, under: [Long, …],   // by which it is found, see keys below
//	  ttl: Long, epoch: ObjectID,   // for how many ms it is trusted; the election under which until was written
//	  rev: ObjectID,                // new with each write that a rival has to notice
//	  at: Date }                    // $currentDate: the server's clock at the last write
//
// Beside it there is one document for each tree that has waiters:
//
//	{ _id: "files", pathlock: 3, tree: "files", on: Long, waitedUntil: Date, at: Date,
//	  reserved: { "JN4…": { path, depth, until: Date }, … } } // by exclusive waiters
//
// Neither has the mark of package mongolock, whose locks and index leave them alone.
const (
	fieldVersion = "pathlock"
	fieldTree    = "tree"
	fieldPath    = "path"
	fieldMode    = "mode"
	fieldDepth   = "depth"
	fieldTimeout = "timeout"
	fieldOwner   = "owner"
	fieldSince   = "since"
	fieldUntil   = "until"
	fieldTTL     = "ttl"
	fieldEpoch   = "epoch"
	fieldOn      = "on"
	fieldUnder   = "under"
	fieldRev     = "rev"
	fieldAt      = "at"
	fieldWaited  = "waitedUntil"

	fieldReserved = "reserved"

	mongoVersion = 3
)

// never is the until of an infinite lock.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// A record is the document of a lock as it was read.
type record struct {
	Lock
	until time.Time
	ttl   time.Duration
	epoch bson.ObjectID
	rev   bson.ObjectID
	at    time.Time

	// The following are of a lock that this process is adding:
	sent, got server.Moment     // when it was sent, and when that was answered
	by        server.ClockBasis // the clock and epoch that its dates go by
	again     bool              // its time has to begin again
}

// readRecord refuses a document that this version did not write: the lock of a newer version
// must not be overlooked.
func readRecord(raw bson.Raw) (r record, err error) {
	r.Token, _ = raw.Lookup("_id").StringValueOK()
	if mark := raw.Lookup(fieldVersion); !server.Is(mark, mongoVersion) {
		return r, fmt.Errorf("%w: in a document of the tree %q is %v, not %d", ErrForeign, fieldVersion, mark, mongoVersion)
	}
	text := func(field string) string {
		s, _ := raw.Lookup(field).StringValueOK()
		return s
	}
	date := func(field string) time.Time {
		t, _ := server.Time(raw.Lookup(field))
		return t
	}
	r.Path, r.Mode, r.Depth = text(fieldPath), Mode(text(fieldMode)), Depth(text(fieldDepth))
	r.Since, r.until, r.at = date(fieldSince), date(fieldUntil), date(fieldAt)
	timeout, _ := raw.Lookup(fieldTimeout).AsInt64OK()
	r.Timeout = time.Duration(timeout)
	if _, owner, ok := raw.Lookup(fieldOwner).BinaryOK(); ok && len(owner) > 0 {
		r.Owner = append([]byte(nil), owner...)
	}
	r.rev, _ = raw.Lookup(fieldRev).ObjectIDOK()
	r.epoch, _ = raw.Lookup(fieldEpoch).ObjectIDOK()
	ttl, _ := raw.Lookup(fieldTTL).AsInt64OK()
	r.ttl = time.Duration(max(0, min(ttl, MaxTimeout.Milliseconds()))) * time.Millisecond // a Duration holds no greater ones
	if r.Timeout != Infinite {
		r.ExpireAt = r.until
	}
	if text(fieldTree) == "" || r.until.IsZero() || r.rev.IsZero() || r.ttl <= 0 && r.finite() || r.check() != nil {
		return r, fmt.Errorf("%w: the document of a lock of %.100q is marked as ours, and is not", ErrForeign, r.Path)
	}
	return r, nil
}

// encoded returns the document of a lock, without the fields that its filter and the server's
// clock add.
func (r *record) encoded(tree string) bson.D {
	l := &r.Lock
	d := bson.D{
		{Key: fieldVersion, Value: mongoVersion}, {Key: fieldTree, Value: tree},
		{Key: fieldPath, Value: l.Path}, {Key: fieldMode, Value: string(l.Mode)}, {Key: fieldDepth, Value: string(l.Depth)},
		{Key: fieldTimeout, Value: int64(l.Timeout)},
		{Key: fieldSince, Value: l.Since}, {Key: fieldUntil, Value: r.until},
		{Key: fieldTTL, Value: server.Millis(l.Timeout)}, {Key: fieldEpoch, Value: r.epoch},
		{Key: fieldRev, Value: r.rev},
	}
	if len(l.Owner) > 0 {
		d = append(d, bson.E{Key: fieldOwner, Value: bson.Binary{Data: l.Owner}})
	}
	above := bases(tree, l.Path)
	here := above[len(above)-1]
	under := make(bson.A, 0, len(above))
	for _, base := range above[:len(above)-1] {
		under = append(under, base|modeBit(l.Mode))
	}
	return append(d,
		bson.E{Key: fieldOn, Value: here | modeBit(l.Mode) | depthBit(l.Depth)},
		bson.E{Key: fieldUnder, Value: under})
}

// Locks are found by numbers: 61 bits of a hash of tree and path, so that an index entry is
// small however long the path is, and bits for the mode and the depth, so that a request reads
// only the locks that it may conflict with. A lock has one number for its path (on), and one
// for each path above it (under). Paths with equal hashes are told apart by the path in the
// document.
const (
	bitShared   = 1
	bitInfinity = 2
	bitWord     = 4
	allBits     = 7
)

func modeBit(m Mode) int64 {
	if m == Shared {
		return bitShared
	}
	return 0
}

func depthBit(d Depth) int64 {
	if d == Infinity {
		return bitInfinity
	}
	return 0
}

// bases returns the hashes of the paths above a clean one, from the root down, and of the path
// itself.
func bases(tree, path string) (all []int64) {
	hash := sha256.New()
	var sum [sha256.Size]byte
	add := func(text string) {
		hash.Write([]byte(text))
		all = append(all, int64(binary.BigEndian.Uint64(hash.Sum(sum[:0])))&^allBits) //nolint:gosec // its bits
	}
	add(tree + "\x00")
	for segment := range segments(path) {
		add("/" + segment)
	}
	return all
}

// wordNumber returns the number of the document with the word of waiters.
func wordNumber(tree string) int64 { return bases(tree, "/")[0] | bitWord }

// covering returns the numbers of all locks that cover a path: those on it, and those
// above it with depth infinity.
func covering(tree, path string, modes ...Mode) (on bson.A) {
	all := bases(tree, path)
	for _, mode := range modes {
		for _, base := range all {
			on = append(on, base|bitInfinity|modeBit(mode))
		}
		on = append(on, all[len(all)-1]|modeBit(mode))
	}
	return on
}

// within returns the numbers of all locks below a path.
func within(tree, path string, modes ...Mode) (under bson.A) {
	all := bases(tree, path)
	for _, mode := range modes {
		under = append(under, all[len(all)-1]|modeBit(mode))
	}
	return under
}
