package mongostore

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// The commands of one key, in the order of the table of docs/internals/design.md §4.4, which says why
// each is as it is. Those that doclock sends too, of the line, renewals and the like, are in
// internal/mongo/lease.

// The fields of the document, docs/internals/design.md §3, and the version of its shape.
const (
	fieldVersion  = "mongolock"
	fieldMode     = lease.FieldMode
	fieldHolders  = lease.FieldHolders
	fieldExpireAt = lease.FieldExpireAt
	fieldRev      = lease.FieldRev

	shape = lease.Shape
)

// layout is that of a document which is a lock.
var layout = lease.Layout{Mark: fieldVersion}

// lock is the path of the fields of a lock, which are the document's.
const lock = lease.Fields("")

// insert is **acquire**: an upsert whose filter names a revision that only the document which it makes
// can have. It finds nothing but its own twin.
func (s *Store) insert(c *lease.Claim) (lease.Command, lease.Validity) {
	t := s.validity(c.TTL)
	return lease.Command{
		Step:   lease.Acquire,
		To:     s.base.MajorityJournaled,
		Filter: ours(c.Key, bson.E{Key: fieldRev, Value: t.Rev}),
		Update: bson.D(grant(c, t)),
		As:     server.Upsert,
		Grants: c.ID,
	}, t
}

// offer is **take an offer**: it takes a key that nobody holds, by the claim's place alone. While that
// is the first in line nobody else is granted the key.
func (s *Store) offer(c *lease.Claim) (lease.Command, lease.Validity) {
	t := s.validity(c.TTL)
	return lease.Command{
		Step:   lease.Offer,
		To:     s.base.MajorityJournaled,
		Filter: ours(c.Key, unheld, lock.At(0, c.Place)),
		Update: bson.D(grant(c, t).Set(fieldRev, t.Rev).Join(lock.Without(c.Place))),
		As:     withoutWaits,
		Grants: c.ID,
	}, t
}

var withoutWaits = options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(bson.D{{Key: lease.FieldWaits, Value: 0}})

// swap is **takeover** if no holder is left, and **join** if some are: a compare-and-swap on the
// document that was seen, whose holders that are over it drops.
//
// Its filter names the revision that was seen, which changes whenever a holder is added or dropped. It
// also names the beat of each holder that it drops, because renewals do not change the revision, and
// what stands in line, because waiters do not either. For the same reason it writes single fields if
// other holders stay: the whole map would put their old ends back.
//
// A reader in line names no revision, so that those to whom the key is offered come together:
// its own place is what may be missing, if the command comes twice.
func (s *Store) swap(c *lease.Claim, seen lease.Document, left store.Status, over map[string]bool) (lease.Command, lease.Validity) {
	t := s.validity(c.TTL)
	still, out := c.Pass(left)
	offered := c.Mode == store.Shared && len(over) == 0 && stands(left, c.Place)
	named := bson.E{Key: fieldRev, Value: seen.Rev}
	if c.Attempt.Rev = seen.Rev; offered {
		c.Attempt.Rev = 0
		named = bson.E{Key: "$or", Value: bson.A{bson.D{unheld}, bson.D{inMode(store.Shared)}}}
	}
	var beats []bson.E
	var dropped []string
	for _, h := range seen.Holders {
		if over[h.ID] {
			beats = append(beats, path(h.ID).Still(h))
			dropped = append(dropped, fieldHolders+"."+h.ID)
		}
	}
	swap := lease.Command{Step: lease.Join, To: s.base.MajorityJournaled, Filter: slices.Concat(ours(c.Key, named), still, beats), Grants: c.ID}
	if c.Mode == store.Exclusive {
		swap.Step, swap.Filter = lease.TakeOver, slices.Concat(ours(c.Key, named), beats, still)
	}
	if len(left.Holders) == 0 && !offered {
		swap.Update = bson.D(grant(c, t).Set(fieldRev, t.Rev).Join(out))
		return swap, t
	}
	set := bson.D{{Key: fieldHolders + "." + c.ID, Value: c.Holder(t)}, {Key: fieldRev, Value: t.Rev}}
	if offered { // the mode may have been another since it was seen
		set = append(set, inMode(c.Mode))
	}
	u := server.Change{
		{Key: "$set", Value: set},
		{Key: "$max", Value: bson.D{{Key: fieldExpireAt, Value: server.Date(t.Until)}}},
	}
	if len(dropped) > 0 {
		u = u.Join(lock.Freed(0))
	} else {
		u = append(u, timed)
	}
	swap.Update = bson.D(u.Unset(dropped...).Join(out))
	return swap, t
}

// grant is the update that makes a claim the key's only holder. It writes the whole map of holders.
// Where the filter does not name the revision it is added.
func grant(c *lease.Claim, t lease.Validity) server.Change {
	return server.Change{
		{Key: "$set", Value: bson.D{
			{Key: fieldMode, Value: string(c.Mode)},
			{Key: fieldHolders, Value: bson.D{{Key: c.ID, Value: c.Holder(t)}}},
			{Key: fieldExpireAt, Value: server.Date(t.Until)},
		}},
		timed,
	}
}

// handOver is **hand off**. Its filter names the revision that the grant of from wrote: every later
// holder and every break changes that, and while the lease may be trusted it has not run out. If the
// lease may have run out, or was not granted to this process, the filter names the holder itself.
func (s *Store) handOver(from store.Ref, c *lease.Claim) (lease.Command, lease.Validity) {
	t := s.validity(c.TTL)
	u := grant(c, t).Set(fieldRev, t.Rev)
	if c.Place != "" { // the line stays as it is otherwise
		u = u.Join(lock.Without(c.Place))
	}
	var filter bson.D
	if l, ok := s.steps.Memory.Of(from.ID); ok && l.Rev != 0 && l.Until > s.base.Clock.Now() {
		filter = ours(from.Key, bson.E{Key: fieldRev, Value: l.Rev})
	} else {
		filter = append(ours(from.Key, exclusively, holds(from.ID)), path(from.ID).Alive(s.base.ClockBasis())...)
	}
	return lease.Command{Step: lease.HandOver, To: s.base.MajorityJournaled, Filter: filter, Update: bson.D(u), Grants: c.ID}, t
}

// remove is **release** while nobody is in line: the document of an exclusive holder is deleted.
func remove(what lease.Step, to *mongo.Collection, filter bson.D) lease.Command {
	return lease.Command{Step: what, To: to, Filter: append(slices.Clip(filter), unawaited)}
}

// drop is **release** otherwise, and **leave**: it takes a holder out of a document that stays. The
// revision moves with an exclusive holder: a late hand-over, which names nothing else, would put it
// back. Sharers keep the revision, because a holder that left invalidates no join.
func (s *Store) drop(what lease.Step, to *mongo.Collection, r store.Ref, filter bson.D, used time.Duration) lease.Command {
	u := lock.Freed(used).Unset(fieldHolders + "." + r.ID)
	if r.Mode == store.Exclusive {
		u = append(u, moveRev)
		if _, known := s.base.Known(); known { // otherwise the end stays as it is
			_, until := s.base.Now().Expiry(store.PlaceFor) // by which the TTL index goes, for the sake of the line
			u = u.Set(fieldExpireAt, server.Date(until))
		}
	}
	return lease.Command{Step: what, To: to, Filter: filter, Update: bson.D(u)}
}

// last is **end a document** that nobody holds and nobody waits for. It does no harm if it comes late or
// twice. If it fails, the holder has left all the same: an empty document blocks no claim, and the next
// one takes it over.
func last(to *mongo.Collection, key string) lease.Command {
	return lease.Command{Step: lease.Last, To: to, Filter: ours(key, unheld, unawaited)}
}

// stay is **release under MinHold**: the holder stays with a mark, so that it can no longer be
// renewed or handed over.
func stay(to *mongo.Collection, r store.Ref, t lease.Validity) lease.Command {
	end := bson.E{Key: fieldExpireAt, Value: server.Date(t.Until)}
	set := bson.D(path(r.ID).Staying(t))
	u := bson.D{{Key: "$set", Value: set}, {Key: "$max", Value: bson.D{end}}, moveRev, timed} // others may hold the key too, and for longer
	if r.Mode == store.Exclusive {
		u = bson.D{{Key: "$set", Value: append(set, end)}, moveRev, timed}
	}
	return lease.Command{Step: lease.Release, To: to, Filter: held(r), Update: u}
}

// mark is **break**: the holder learns of it at its next renewal.
func (s *Store) mark(r store.Ref, reason string) lease.Command {
	return lease.Command{Step: lease.Break, To: s.base.MajorityJournaled, Filter: ours(r.Key, holds(r.ID)), Update: bson.D{
		{Key: "$set", Value: bson.D{{Key: path(r.ID).Path(lease.FieldBroken), Value: reason}}},
		moveRev,
		timed,
	}}
}

// undo removes what a claim left (§4.6). With from it also removes the holder that the claim was to
// replace. If the claim may still be on its way as a join that named a revision, a new revision bars
// it. Both are one command: between two the join could land.
//
// The claim's place may stay in the line: its waiter asks on. The reply has those who wait: they are told.
func (s *Store) undo(claim store.Ref, from *store.Ref, joined int64) lease.Command {
	undo := s.drop(lease.Undo, s.base.MajorityJournaled, claim, nil, 0)
	there := holds(claim.ID)
	or := func(other bson.E) { there = bson.E{Key: "$or", Value: bson.A{bson.D{there}, bson.D{other}}} }
	switch {
	case from != nil:
		or(holds(from.ID))
		undo.Update = bson.D(server.Change(undo.Update).Unset(fieldHolders + "." + from.ID))
	case claim.Mode != store.Exclusive:
		undo.Update = append(undo.Update, moveRev)
		if joined != 0 {
			or(bson.E{Key: fieldRev, Value: joined})
		}
	}
	undo.Filter = ours(claim.Key, there)
	if claim.Mode == store.Exclusive {
		undo.Filter = append(undo.Filter, exclusively)
	}
	return undo
}

// named is the filter of the document under a key, whoever made it.
func named(key string) bson.D { return bson.D{{Key: "_id", Value: key}} }

// ours returns the filter of this library's document under a key. It names the mark: without
// it, a stranger's document that has our fields would be overwritten.
func ours(key string, more ...bson.E) bson.D {
	filter := make(bson.D, 0, 2+len(more))
	filter = append(filter, bson.E{Key: "_id", Value: key}, bson.E{Key: fieldVersion, Value: shape})
	return append(filter, more...)
}

// held is the filter of the document that a holder has.
func held(r store.Ref) bson.D { return ours(r.Key, inMode(r.Mode), holds(r.ID)) }

func holds(id string) bson.E { return lease.Exists(fieldHolders + "." + id) }

func inMode(mode store.Mode) bson.E { return bson.E{Key: fieldMode, Value: string(mode)} }

func path(id string) lease.Fields { return lease.Fields(fieldHolders + "." + id) }

var (
	exclusively = inMode(store.Exclusive)
	unheld      = bson.E{Key: fieldHolders, Value: bson.D{}}
	unawaited   = lock.Unawaited()
	timed       = lock.Timed()
)

// moveRev goes with every change of the holders that a compare-and-swap must not overlook. It
// adds, so that the revision written by a claim is not lost: if the same change is sent twice,
// over a rollback, it gives two revisions if a holder came in between. A revision of its own,
// written twice, would name two documents.
var moveRev = bson.E{Key: "$inc", Value: bson.D{{Key: fieldRev, Value: int64(1)}}}

// validity returns what a claim writes: among it a revision that no document of this key has had. Its 52
// bits, and what moveRev adds, are exact in a shell whose numbers are doubles.
func (s *Store) validity(ttl time.Duration) lease.Validity {
	var b [8]byte
	_, _ = rand.Read(b[1:]) // it never fails; seven bytes, because the simulation takes eight for jitter
	t := s.base.Validity(ttl)
	t.Rev = int64(binary.BigEndian.Uint64(b[:])>>4 | 1) //nolint:gosec // 52 bits
	return t
}
