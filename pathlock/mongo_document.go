package pathlock

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongobase"
)

// The document of a tree:
//
//	{ _id: "files", pathlock: 1,           // the version of this shape, and the mark that it is ours
//	  rev: ObjectId, at: Date,             // new with every edit; the server's clock then
//	  locks: { "<uuid>": { path, mode, depth, timeout, owner, since, expireAt? } },
//	  watchedUntil: Date, seq: 17,         // somebody listens; the last event
//	  log: { "17": { kind, at, token, … as above } } }
//
// It has no mark of package mongolock's: to that it is a stranger's, which its locks
// and its index leave alone.
const (
	fieldMark    = "pathlock"
	fieldRev     = "rev"
	fieldAt      = "at"
	fieldLocks   = "locks"
	fieldWatched = "watchedUntil"
	fieldSeq     = "seq"
	fieldLog     = "log"
	fieldPath    = "path"
	fieldMode    = "mode"
	fieldDepth   = "depth"
	fieldTimeout = "timeout"
	fieldOwner   = "owner"
	fieldSince   = "since"
	fieldExpire  = "expireAt"
	fieldKind    = "kind"
	fieldToken   = "token"

	mongoVersion = 1
	tokenPrefix  = "urn:uuid:"

	lockSize = 256 // at most what a lock takes in the document beside its texts
)

// A mongoFound is a document as it was read; of a tree that nobody wrote it is empty.
type mongoFound struct {
	raw bson.Raw
	rev bson.ObjectID
}

// A mongoWrite is an edit as a command.
type mongoWrite struct {
	filter, update bson.D
	rev            bson.ObjectID // the new one
	first          bool          // it makes the document
}

// mongoShape refuses a document that is not of this version.
func mongoShape(name string, raw bson.Raw) (mongoFound, error) {
	mark := raw.Lookup(fieldMark)
	rev, ok := raw.Lookup(fieldRev).ObjectIDOK()
	switch {
	case mark.IsZero():
		return mongoFound{}, fmt.Errorf("%w: the document %q has no %q", ErrForeign, name, fieldMark)
	case !mark.IsNumber() || mark.AsFloat64() != mongoVersion:
		return mongoFound{}, fmt.Errorf("%w: in the document %q %q is %v, not %d", ErrForeign, name, fieldMark, mark, mongoVersion)
	case !ok:
		return mongoFound{}, foreign(name, fieldRev)
	}
	return mongoFound{raw: raw, rev: rev}, nil
}

func foreign(name, field string) error {
	return fmt.Errorf("%w: the document %q is marked as ours, and its %q is not", ErrForeign, name, field)
}

// decode makes the document of what was read. What is not as we write it is an error,
// as it may be a newer version's.
func (f mongoFound) decode() (*Document, error) {
	d := NewDocument()
	if f.raw == nil {
		return d, nil
	}
	name, _ := f.raw.Lookup("_id").StringValueOK()
	ok := eachField(f.raw.Lookup(fieldLocks), func(id string, raw bson.Raw) bool {
		l, ok := readLock(raw)
		l.Token = tokenPrefix + id
		ok = ok && l.check() == nil
		if ok {
			d.index.put(l)
		}
		return ok
	})
	if !ok {
		return nil, foreign(name, fieldLocks)
	}
	ok = eachField(f.raw.Lookup(fieldLog), func(id string, raw bson.Raw) bool {
		l, ok := readLock(raw)
		seq, err := strconv.ParseInt(id, 10, 64)
		kind, kindOK := raw.Lookup(fieldKind).StringValueOK()
		at, atOK := mongobase.Time(raw.Lookup(fieldAt))
		token, tokenOK := raw.Lookup(fieldToken).StringValueOK()
		l.Token = tokenPrefix + token
		d.Log = append(d.Log, Event{Seq: seq, Kind: Kind(kind), At: at, Lock: l})
		return ok && err == nil && kindOK && atOK && tokenOK
	})
	if !ok {
		return nil, foreign(name, fieldLog)
	}
	d.sortLog()
	d.Seq, _ = f.raw.Lookup(fieldSeq).AsInt64OK()
	d.Watched, _ = mongobase.Time(f.raw.Lookup(fieldWatched))
	return d, nil
}

// eachField shows visit the documents in a document, and reports whether all were well.
// A field that is not there is well.
func eachField(v bson.RawValue, visit func(string, bson.Raw) bool) bool {
	if v.IsZero() {
		return true
	}
	doc, ok := v.DocumentOK()
	if !ok {
		return false
	}
	elements, err := doc.Elements()
	if err != nil {
		return false
	}
	for _, e := range elements {
		raw, ok := e.Value().DocumentOK()
		if !ok || !visit(e.Key(), raw) {
			return false
		}
	}
	return true
}

func readLock(raw bson.Raw) (l Lock, ok bool) {
	elements, err := raw.Elements()
	if err != nil {
		return l, false
	}
	for _, e := range elements {
		v := e.Value()
		switch e.Key() {
		case fieldPath:
			l.Path, _ = v.StringValueOK()
		case fieldMode:
			text, _ := v.StringValueOK()
			l.Mode = Mode(text)
		case fieldDepth:
			text, _ := v.StringValueOK()
			l.Depth = Depth(text)
		case fieldTimeout:
			ns, _ := v.AsInt64OK()
			l.Timeout = time.Duration(ns)
		case fieldOwner:
			_, owner, _ := v.BinaryOK()
			l.Owner = append([]byte(nil), owner...)
		case fieldSince:
			l.Since, ok = mongobase.Time(v)
		case fieldExpire:
			l.ExpireAt, _ = mongobase.Time(v)
		}
	}
	return l, ok
}

func writeLock(l Lock) bson.D {
	d := bson.D{
		{Key: fieldPath, Value: l.Path},
		{Key: fieldMode, Value: string(l.Mode)},
		{Key: fieldDepth, Value: string(l.Depth)},
		{Key: fieldTimeout, Value: int64(l.Timeout)},
		{Key: fieldSince, Value: l.Since},
	}
	if len(l.Owner) > 0 {
		d = append(d, bson.E{Key: fieldOwner, Value: bson.Binary{Data: l.Owner}})
	}
	if !l.ExpireAt.IsZero() {
		d = append(d, bson.E{Key: fieldExpire, Value: l.ExpireAt})
	}
	return d
}

// mongoWrite is an edit as a command that names the revision found. Only what changes
// is sent.
func (d *Document) mongoWrite(name string, found mongoFound, e Edit) (mongoWrite, error) {
	w := mongoWrite{rev: bson.NewObjectID(), first: found.raw == nil}
	w.filter = bson.D{{Key: "_id", Value: name}, {Key: fieldMark, Value: mongoVersion}, {Key: fieldRev, Value: found.rev}}
	if w.first {
		w.filter[2].Value = bson.D{{Key: "$exists", Value: false}}
	}
	set := bson.D{{Key: fieldRev, Value: w.rev}}
	size := len(found.raw) // and what the log takes, which is bounded, there is room for
	for _, l := range e.Put {
		set = append(set, bson.E{Key: lockField(l.Token), Value: writeLock(l)})
		size += lockSize + len(l.Path) + len(l.Owner)
	}
	if d.adds(e) && size > maxDocument {
		return w, fmt.Errorf("%w: %q has %d bytes, and %d are the most", ErrTooLarge, name, size, maxDocument)
	}
	var unset bson.D
	dropped := make(map[string]bool, len(e.Drop))
	for _, token := range e.Drop {
		if d.index.tokens[token] != nil && !dropped[token] {
			dropped[token] = true
			unset = append(unset, bson.E{Key: lockField(token), Value: ""})
		}
	}
	if n := len(e.Events); n > 0 {
		set = append(set, bson.E{Key: fieldSeq, Value: e.Events[n-1].Seq})
		kept := e.Events[max(0, n-LogLength):]
		for _, event := range kept {
			l := append(writeLock(event.Lock),
				bson.E{Key: fieldKind, Value: string(event.Kind)}, bson.E{Key: fieldAt, Value: event.At},
				bson.E{Key: fieldToken, Value: strings.TrimPrefix(event.Lock.Token, tokenPrefix)})
			set = append(set, bson.E{Key: logField(event.Seq), Value: l})
		}
		for _, old := range d.Log[:max(0, min(len(d.Log), len(d.Log)+len(kept)-LogLength))] {
			unset = append(unset, bson.E{Key: logField(old.Seq), Value: ""})
		}
	}
	if e.Seq > d.Seq && len(e.Events) == 0 {
		set = append(set, bson.E{Key: fieldSeq, Value: e.Seq})
	}
	if e.Watched.After(d.Watched) {
		set = append(set, bson.E{Key: fieldWatched, Value: e.Watched})
	}
	w.update = bson.D{{Key: "$set", Value: set}, {Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}}}}
	if len(unset) > 0 {
		w.update = append(w.update, bson.E{Key: "$unset", Value: unset})
	}
	return w, nil
}

func lockField(token string) string { return fieldLocks + "." + strings.TrimPrefix(token, tokenPrefix) }

func logField(seq int64) string { return fieldLog + "." + strconv.FormatInt(seq, 10) }
