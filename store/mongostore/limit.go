package mongostore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
	"github.com/mongolock/mongolock/internal/mongo/mongolease"
	"github.com/mongolock/mongolock/store"
)

// How many permits a key has, if that was set, stands in a document of its own, so that no
// release, takeover or sweep of the key can lose it (docs/internals/design.md §4.12). It has no end
// for the TTL index to heed, until the number is taken back.
const (
	fieldWhat = "kind"
	kindLimit = "limit"
)

func limitName(key string) bson.E {
	return bson.E{Key: "_id", Value: bson.D{{Key: fieldLimit, Value: key}}}
}

func ourLimit(key string, more ...bson.E) bson.D {
	return append(bson.D{limitName(key), {Key: fieldMark, Value: shape}, {Key: fieldWhat, Value: kindLimit}}, more...)
}

// A limitRecord is such a document as read. The zero value is of none.
type limitRecord struct {
	key      string
	n        int
	rev      int64
	there    bool
	stranger string
}

func limitOf(raw bson.Raw) (key string, is bool) {
	return raw.Lookup("_id", fieldLimit).StringValueOK()
}

func readLimit(raw bson.Raw) (l limitRecord) {
	l.key, l.there = limitOf(raw)
	kind, _ := raw.Lookup(fieldWhat).StringValueOK()
	n, isN := whole(raw.Lookup(fieldLimit))
	rev, isRev := whole(raw.Lookup(fieldRev))
	l.n, l.rev = int(n), rev
	if !mongobase.Is(raw.Lookup(fieldMark), shape) || kind != kindLimit || !isN || !isRev || n < 0 || n > math.MaxInt32 {
		l.stranger = "beside it another with the _id of its number of permits"
	}
	return l
}

// whole returns a number of any type that is a whole one. A shell may have written it.
func whole(v bson.RawValue) (n int64, is bool) {
	if f, isF := v.DoubleOK(); isF {
		return int64(f), math.Abs(f) < 1<<53 && f == math.Trunc(f)
	}
	return v.AsInt64OK()
}

func (r record) with(l limitRecord) record {
	if l.stranger != "" && r.Stranger == "" {
		r = r.strange(l.stranger)
	}
	r.set, r.knowsSet = l.n, true
	return r
}

// findWithLimit reads the document of a key, and that of its number, by one command.
func (s *Store) findWithLimit(ctx context.Context, key string) (image reply, l limitRecord, err error) {
	var found bson.Raw
	image.Reply, err = s.base.FindFew(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: bson.A{key, limitName(key).Value}}}}}, func(doc bson.Raw) {
		if _, is := limitOf(doc); is {
			l = readLimit(doc)
		} else {
			found, image.Record = doc, readRecord(doc)
		}
	})
	image.Image, image.Record = found, image.Record.with(l)
	return image, l, err
}

// seeing makes an image show the number too, unless it does: for a claim of permits, or if some are
// held or waited for. c is nil if no claim is under way.
func (s *Store) seeing(ctx context.Context, key string, c *claim, image *reply) error {
	claims := c != nil && c.Mode == store.Permits
	if !image.Found() || image.Record.knowsSet || !claims && !image.Record.permits() {
		return nil
	}
	return s.seeNumber(ctx, key, image, claims && s.untold(c, *image))
}

// seeNumber makes an image show the number as it is now, or, unless current is set, as it was before a
// primary was deposed.
func (s *Store) seeNumber(ctx context.Context, key string, image *reply, current bool) error {
	r, err := s.base.FindOne(ctx, bson.D{limitName(key)}, current)
	if err != nil {
		return err
	}
	var l limitRecord
	if r.Found() {
		l = readLimit(r.Image)
	}
	image.Record = image.Record.with(l)
	return nil
}

// untold reports whether no revision tells a claim of permits that another number was set: through a
// router that may be on another shard, whose primary was deposed. The first of a key's permits is
// there whatever the number.
func (s *Store) untold(c *claim, image reply) bool {
	joins := image.Found() && (image.Record.mode == store.Permits || len(image.Record.Holders) == 0)
	return s.base.Kind().Router || c.Weight > 1 && !joins
}

// permits reports whether permits of the key are held, or waited for.
func (r record) permits() bool {
	return len(r.Holders) > 0 && r.mode == store.Permits || slices.ContainsFunc(r.Line, func(w store.Waiter) bool {
		mode, _ := w.Place.Mode()
		return mode == store.Permits
	})
}

// besides is seeing for the image after a change that was made, which tells who is to be told.
// If that fails too few or too many are, which costs them time.
func (s *Store) besides(ctx context.Context, key string, image reply) reply {
	if len(image.Record.Line) > 0 {
		_ = s.seeing(ctx, key, nil, &image)
	}
	return image
}

// setRaces is how many races with others who set the number of a key SetLimit may lose.
const setRaces = 20

// SetLimit sets how many permits a key has. That write names the revision of the number that it
// replaces, so that a late copy of it changes nothing. Then the revision of the key's document moves,
// so that no claim joins it which has read another number.
func (s *Store) SetLimit(ctx context.Context, key string, n int) (store.Status, error) {
	ctx = mongobase.Bare(ctx)
	status := store.Status{Key: key}
	err := s.refuseUnfitOnce(ctx)
	if err == nil {
		_, err = s.base.Read(ctx)
	}
	if err != nil {
		return status, mongoerr.NotApplied(err)
	}
	for range setRaces {
		image, l, err := s.findWithLimit(ctx, key)
		switch {
		case err != nil:
			return status, mongoerr.NotApplied(err)
		case image.Record.Foreign() != nil:
			return status, image.Record.Foreign()
		}
		if set, err := s.writeLimit(ctx, key, n, l); err != nil {
			return status, mongoerr.Mark(err)
		} else if set {
			return s.limitSet(ctx, key, n, image.Found())
		}
	}
	return status, mongoerr.NotApplied(fmt.Errorf("others set it at the same time"))
}

// writeLimit writes the number in the place of the one that was seen, and reports false if that has
// changed since. One that was taken back stays for the TTL index, so that late copies find it.
func (s *Store) writeLimit(ctx context.Context, key string, n int, seen limitRecord) (bool, error) {
	rev := newRev()
	u, opts := mongobase.Change{}.Set(fieldLimit, n), mongobase.Upsert
	if seen.there {
		u, opts, rev = u.Set(fieldRev, rev), mongobase.After, seen.rev
	}
	if n > 0 {
		u = u.Unset(fieldExpireAt)
	} else {
		_, until := s.base.Now().Expiry(0)
		u = u.Set(fieldExpireAt, mongobase.Date(until))
	}
	r, err := s.base.Modify(ctx, s.base.Durable, ourLimit(key, bson.E{Key: fieldRev, Value: rev}), append(bson.D(u), stampAt), opts)
	if mongoerr.ClassOf(err) == mongoerr.DuplicateID && !seen.there {
		return false, nil
	}
	return r.Found(), err
}

// limitSet moves the revision of a document that permits may join, and returns the key. One that is
// held alone, or by readers, it only reads.
func (s *Store) limitSet(ctx context.Context, key string, n int, used bool) (store.Status, error) {
	joined := bson.E{Key: "$or", Value: bson.A{bson.D{inMode(store.Permits)}, bson.D{unheld}}}
	image, err := s.steps.Send(ctx, mongolease.Limit, s.base.Durable, ours(key, joined), bson.D{moveRev, stampAt}, mongobase.After)
	if err == nil && used && !image.Found() {
		image, err = s.find(ctx, key)
	}
	if err != nil {
		return store.Status{Key: key}, fmt.Errorf("the number is set, and may be overlooked by claims that are under way: %w", err)
	}
	return s.steps.Status(key, image.Record.with(limitRecord{n: n})), nil
}

// emptied makes a document for the line of a key that has none: a claim that wants more permits
// than are set waits though nobody holds the key.
func (s *Store) emptied(ctx context.Context, c *claim) error {
	rev := newRev()
	u := mongobase.Change{s.awaited()}.Set(fieldMode, string(c.Mode)).Set(fieldLimit, c.Limit).Set(fieldHolders, bson.D{})
	_, err := s.steps.Send(mongobase.Bare(ctx), mongolease.Wait, s.base.Soft, ours(c.Key, bson.E{Key: fieldRev, Value: rev}), append(bson.D(u), stampAt), mongobase.Upsert)
	if mongoerr.ClassOf(err) == mongoerr.DuplicateID {
		return nil
	}
	return err
}

// limits reads the numbers of the keys that begin with prefix, in the order of the keys.
func (s *Store) limits(ctx context.Context, prefix string) (all []limitRecord, err error) {
	within := bson.D{}
	for _, bound := range prefixRange(prefix) {
		within = append(within, bson.E{Key: bound.Key, Value: bson.D{{Key: fieldLimit, Value: bound.Value}}})
	}
	err = s.base.FindAll(ctx, s.base.Soft, append(bson.D{{Key: "_id", Value: within}}, bson.E{Key: fieldMark, Value: shape}, bson.E{Key: fieldWhat, Value: kindLimit}), listBatch,
		func(doc bson.Raw) {
			if l := readLimit(doc); l.stranger == "" && l.n > 0 && strings.HasPrefix(l.key, prefix) {
				all = append(all, l)
			}
		}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	return all, err
}
