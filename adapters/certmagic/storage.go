package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/certmagic"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock"
)

const (
	// MaxKey is the greatest length of a key, in bytes.
	MaxKey = 1024
	// MaxValue is the greatest size of a value, in bytes: a document of MongoDB has 16 MiB.
	MaxValue = 16<<20 - 4096
)

var (
	// ErrKey is returned for a key that is empty, too long or not UTF-8. Nothing was sent.
	ErrKey = errors.New("certmagiclock: not a key")
	// ErrTooLarge is returned by Store for a value above MaxValue. Nothing was sent.
	ErrTooLarge = errors.New("certmagiclock: the value is too large")
)

// A Storage implements certmagic.Storage on a collection of MongoDB, with the locks of a
// Locker. New makes one. It is safe for concurrent use.
type Storage struct {
	*Locker
	coll *mongo.Collection
}

var _ certmagic.Storage = (*Storage)(nil)

// New makes a Storage that keeps its keys as documents of coll and locks with locks, such as a
// *mongolock.Client. It sends nothing yet. Keep nothing else in coll, not even the locks, and
// make it without a collation. It contains private keys: let no other program read it.
//
// The Storage sets its own write concern, read concern and read preference, whatever coll says.
func New(locks mongolock.Locker, coll *mongo.Collection, opts ...Option) (*Storage, error) {
	locker, err := NewLocker(locks, opts...)
	if coll == nil {
		err = errors.Join(err, errors.New("certmagiclock: New: the collection is nil"))
	}
	if err != nil {
		return nil, err
	}
	own := options.Collection().SetWriteConcern(writeconcern.Majority()).SetReadConcern(readconcern.Local()).SetReadPreference(readpref.Primary())
	return &Storage{Locker: locker, coll: coll.Clone(own)}, nil
}

// String names the storage in CertMagic's logs.
func (s *Storage) String() string {
	return "mongolock:" + s.coll.Database().Name() + "." + s.coll.Name()
}

// A file is the document of a key.
type file struct {
	Key      string    `bson:"_id"`
	Value    []byte    `bson:"value"`
	Modified time.Time `bson:"modified"`
	Size     int64     `bson:"size"`
}

// clean returns a key as a document has it: a path without leading or trailing slashes, as
// certmagic.FileStorage treats it. The root is empty.
func clean(key string) (string, error) {
	switch is := path.Clean("/" + key)[1:]; {
	case !utf8.ValidString(is):
		return "", fmt.Errorf("%w: %q is not UTF-8", ErrKey, key)
	case len(is) > MaxKey:
		return "", fmt.Errorf("%w: %.40q… has %d bytes, %d are possible", ErrKey, key, len(is), MaxKey)
	default:
		return is, nil
	}
}

// named is clean for a call that needs a key.
func named(key string) (string, error) {
	is, err := clean(key)
	if err == nil && is == "" {
		return "", fmt.Errorf("%w: it is empty", ErrKey)
	}
	return is, err
}

func at(key string) bson.D { return bson.D{{Key: "_id", Value: key}} }

// below matches all keys in a directory, however deep: '0' comes right after '/'.
func below(dir string) bson.D {
	if dir == "" {
		return bson.D{}
	}
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: dir + "/"}, {Key: "$lt", Value: dir + "0"}}}}
}

// under matches a key and all below it.
func under(key string) bson.D {
	if key == "" {
		return bson.D{}
	}
	return bson.D{{Key: "$or", Value: bson.A{at(key), below(key)}}}
}

func failed(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("certmagiclock: %s %q: %w", op, key, err)
}

// Store puts value at key. When it returns nil, a majority has the value.
func (s *Storage) Store(ctx context.Context, key string, value []byte) error {
	is, err := named(key)
	if err != nil {
		return failed("store", key, err)
	}
	if len(value) > MaxValue {
		return failed("store", key, fmt.Errorf("%w: %d bytes, %d are possible", ErrTooLarge, len(value), MaxValue))
	}
	if value == nil {
		value = []byte{} // null would not be a value
	}
	update := bson.D{
		{Key: "$set", Value: bson.D{{Key: "value", Value: value}, {Key: "size", Value: int64(len(value))}}},
		{Key: "$currentDate", Value: bson.D{{Key: "modified", Value: true}}},
	}
	for range 3 { // if two callers store a new key at once, one of them may find it there
		if _, err = s.coll.UpdateOne(ctx, at(is), update, options.UpdateOne().SetUpsert(true)); !mongo.IsDuplicateKeyError(err) {
			break
		}
	}
	return failed("store", key, err)
}

// Load returns the value at key. For a key that does not exist, and for a directory, the error
// matches fs.ErrNotExist.
func (s *Storage) Load(ctx context.Context, key string) ([]byte, error) {
	is, err := named(key)
	if err != nil {
		return nil, failed("load", key, err)
	}
	var f file
	if err := s.coll.FindOne(ctx, at(is)).Decode(&f); err != nil {
		return nil, failed("load", key, missing(err))
	}
	return f.Value, nil
}

// missing returns the driver's error, or fs.ErrNotExist for a document that does not exist.
func missing(err error) error {
	if errors.Is(err, mongo.ErrNoDocuments) {
		return fs.ErrNotExist
	}
	return err
}

// Delete deletes the key, and all keys below it. A key that does not exist is no error.
func (s *Storage) Delete(ctx context.Context, key string) error {
	is, err := named(key)
	if err != nil {
		return failed("delete", key, err)
	}
	_, err = s.coll.DeleteMany(ctx, under(is))
	return failed("delete", key, err)
}

// Exists reports whether the key exists, as a file or a directory. It returns false if that
// cannot be found out, as certmagic.Storage requires; the error is logged.
func (s *Storage) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.logger.Warn("certmagiclock: cannot tell whether a key exists", "key", key, "error", err)
	}
	return err == nil
}

// Stat describes the key. For a key that does not exist the error matches fs.ErrNotExist.
func (s *Storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	is, err := clean(key)
	switch {
	case err != nil:
		return certmagic.KeyInfo{}, failed("stat", key, err)
	case is == "":
		return certmagic.KeyInfo{Key: key}, nil // the root
	}
	var f file
	// A file comes before the keys below it.
	first := options.FindOne().SetProjection(bson.D{{Key: "value", Value: 0}}).SetSort(bson.D{{Key: "_id", Value: 1}})
	if err := s.coll.FindOne(ctx, under(is), first).Decode(&f); err != nil {
		return certmagic.KeyInfo{}, failed("stat", key, missing(err))
	}
	if f.Key != is {
		return certmagic.KeyInfo{Key: key}, nil // a directory
	}
	return certmagic.KeyInfo{Key: key, Modified: f.Modified, Size: f.Size, IsTerminal: true}, nil
}

// List returns the contents of a directory, in the order of keys: the keys of files and of
// directories. With recursive it walks the directories. For a directory that does not exist the
// error matches fs.ErrNotExist; a file has no contents.
func (s *Storage) List(ctx context.Context, dir string, recursive bool) ([]string, error) {
	is, err := clean(dir)
	if err != nil {
		return nil, failed("list", dir, err)
	}
	ids := options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetSort(bson.D{{Key: "_id", Value: 1}})
	cursor, err := s.coll.Find(ctx, under(is), ids)
	if err != nil {
		return nil, failed("list", dir, err)
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	found, inDir := is == "", walk{dir: is, recursive: recursive}
	for cursor.Next(ctx) {
		found = true
		key, _ := cursor.Current.Lookup("_id").StringValueOK()
		inDir.add(key)
	}
	switch err := cursor.Err(); {
	case err != nil:
		return nil, failed("list", dir, err)
	case !found:
		return nil, failed("list", dir, fs.ErrNotExist)
	}
	slices.Sort(inDir.keys)
	return slices.Compact(inDir.keys), nil
}

// A walk collects the keys of a directory.
type walk struct {
	dir       string
	recursive bool
	keys      []string
	last      string // the directory added last, so that few are added twice
}

func (w *walk) add(key string) {
	inside := strings.TrimPrefix(key, w.dir)
	if inside = strings.TrimPrefix(inside, "/"); inside == "" {
		return // the directory itself, which is a file
	}
	for i := range len(inside) {
		if inside[i] != '/' {
			continue
		}
		if dir := path.Join(w.dir, inside[:i]); dir != w.last {
			w.last, w.keys = dir, append(w.keys, dir)
		}
		if !w.recursive {
			return
		}
	}
	w.keys = append(w.keys, key)
}
