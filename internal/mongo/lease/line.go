package lease

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// A lock has its line in two fields: an array of the places, and beside it a document that tells
// of each place who waits there, and since when. Places are strings, so that any server can
// remove one; and a filter can name the first without an image.

// places returns the path of the line, place that of what is told of one of its places.
func (f Fields) places() string                    { return f.Path(FieldLine) }
func (f Fields) place(p store.Place) string        { return f.Path(FieldWaits) + "." + string(p) }
func (f Fields) of(p store.Place, x string) string { return f.place(p) + "." + x }

func (f Fields) At(n int, p store.Place) bson.E {
	return bson.E{Key: f.places() + "." + strconv.Itoa(n), Value: string(p)}
}

func (f Fields) Among(p store.Place) bson.E { return bson.E{Key: f.places(), Value: string(p)} }

// unseen is the condition that a waiter was not seen since it was shown.
func (f Fields) unseen(w store.Waiter) bson.E {
	e := bson.E{Key: f.of(w.Place, FieldSeen)}
	if !w.Seen.IsZero() {
		e.Value = server.Date(w.Seen)
	}
	return e
}

func (f Fields) Unawaited() bson.E { return Lacks(f.places() + ".0") }

func (f Fields) Without(gone ...store.Place) (u server.Change) {
	if len(gone) == 0 {
		return nil
	}
	u = u.Add("$pullAll", bson.E{Key: f.places(), Value: listed(gone)})
	for i, p := range gone {
		if !slices.Contains(gone[:i], p) { // it takes an operator's hand: a server refuses to unset a field twice
			u = u.Unset(f.place(p))
		}
	}
	return u
}

func listed(places []store.Place) bson.A {
	list := make(bson.A, len(places))
	for i, p := range places {
		list[i] = string(p)
	}
	return list
}

// readLine reads a line, if it is one. Of a place of which nothing is told nobody knows that its
// waiter lives: it is stale. A place that no path can have, of which an array tells, or that was seen at no
// date since 1970, could neither be named in a filter nor taken out: then the claims of all who wait would
// miss for ever.
func readLine(line, waits bson.RawValue) (all []store.Waiter, ok bool) {
	told, ok := waits.DocumentOK()
	if !ok && !waits.IsZero() {
		return nil, false
	}
	if line.IsZero() {
		return nil, true
	}
	list, ok := line.ArrayOK()
	if !ok {
		return nil, false
	}
	places, err := list.Values()
	for _, v := range places {
		p, is := v.StringValueOK()
		if !is || p == "" || strings.ContainsAny(p, ".$\x00") {
			return nil, false
		}
		w := store.Waiter{Place: store.Place(p)}
		about, missing := told.LookupErr(p)
		of, is := about.DocumentOK()
		switch {
		case is:
			w.Owner, _ = of.Lookup(FieldOwner).StringValueOK()
			w.Since, _ = server.Time(of.Lookup(FieldSince))
			w.Slow, _ = of.Lookup(FieldSlow).BooleanOK()
			seen := of.Lookup(FieldSeen)
			if w.Seen, is = server.Time(seen); !seen.IsZero() && (!is || w.Seen.UnixMilli() < 0) {
				return nil, false
			}
		case missing == nil:
			return nil, false
		}
		all = append(all, w)
	}
	return all, err == nil
}

// Places returns who waits.
func Places(line []store.Waiter) []store.Place {
	if len(line) == 0 {
		return nil
	}
	all := make([]store.Place, len(line))
	for i, w := range line {
		all[i] = w.Place
	}
	return all
}

func indexOf(line []store.Waiter, p store.Place) int {
	return slices.IndexFunc(line, func(w store.Waiter) bool { return w.Place == p })
}

// Stand returns the document that is in the way of a claim, with the claim's place in its line,
// if the claim has a place: standing in line is the look. A claim without a place only reads. Nothing
// is found if the document is gone, if it is a stranger's, or if its line is full.
//
// The command of a place goes in the session of the claim's attempt: once it is answered, the
// server refuses what the attempt sent before.
func (c *Claim) Stand(ctx context.Context) (image Image, err error) {
	if c.Place == "" {
		return c.Steps.Find(ctx, c.Asks)
	}
	if c.InLine {
		if image, err = c.StillWaits(ctx); err != nil || image.Found() {
			return image, err
		}
	}
	lock := c.Steps.Path
	where := bson.E{Key: lock.places(), Value: bson.D{{Key: "$ne", Value: string(c.Place)}}}
	u, dates := server.Change{}.Add("$push", lock.Among(c.Place)), []string{lock.of(c.Place, FieldSince), lock.of(c.Place, FieldSeen)}
	if since := c.Claim.Since; !since.IsZero() { // it stands before those who came later
		if image, err = c.Steps.Find(ctx, c.Asks); err != nil || !image.Found() {
			return image, err
		}
		line := Places(image.Line)
		if n := c.Joins(image.Line); n < len(line) && !slices.Contains(line, c.Place) {
			where.Value = listed(line)
			u = server.Change{}.Set(lock.places(), listed(slices.Insert(line, n, c.Place)))
		}
		u, dates = u.Set(lock.of(c.Place, FieldSince), server.Date(since)), dates[1:]
	}
	if c.Slow || !c.Claim.Since.IsZero() {
		u = u.Set(lock.of(c.Place, FieldSlow), true)
	}
	conditions := append(c.Steps.sound(), where, Lacks(lock.places()+"."+strconv.Itoa(store.LineMost-1)))
	image, err = c.step(ctx, Wait, conditions, u.Set(lock.of(c.Place, FieldOwner), c.Owner), dates...)
	c.InLine = image.Found()
	if c.InLine && image.Foreign != nil { // in a way that no filter can name: whoever mends it finds no place there
		_, _ = c.Steps.StepOut(ctx, c.Ours, c.Place)
	}
	return image, err
}

// IsA is the condition that a field is of a type, or an array with an element that is.
func IsA(path, kind string) bson.E {
	return bson.E{Key: path, Value: bson.D{{Key: "$type", Value: kind}}}
}

// Lined is the condition that the fields of the line have their types, if they are there.
func (f Fields) Lined() bson.E {
	noneOr := func(path, kind string) bson.D {
		return bson.D{{Key: "$or", Value: bson.A{bson.D{Lacks(path)}, bson.D{IsA(path, kind)}}}}
	}
	return bson.E{Key: "$and", Value: bson.A{noneOr(f.places(), "array"), noneOr(f.Path(FieldWaits), "object"), bson.D{Lacks(f.Path(FieldWaits) + ".0")}}}
}

// StillWaits says that the claim still waits at its place, if that is in line. The after-image
// shows the line.
func (c *Claim) StillWaits(ctx context.Context) (Image, error) {
	lock := c.Steps.Path
	image, err := c.step(ctx, Refresh, []bson.E{Exists(lock.place(c.Place))}, server.Change{}, lock.of(c.Place, FieldSeen))
	c.InLine = err == nil && image.Found()
	return image, err
}

// step sends a command of the claim's place, with the server's time in some more fields.
//
// A document that is a lock has an end besides its holders', which the TTL index heeds: for the sake
// of its line it has to stay for some time. In the place of a stranger's value that end would hide it.
func (c *Claim) step(ctx context.Context, what Step, conditions []bson.E, u server.Change, dates ...string) (Image, error) {
	s := c.Steps
	for _, d := range append(dates, s.Path.Path(FieldAt)) {
		u = u.Add("$currentDate", bson.E{Key: d, Value: true})
	}
	filter := append(slices.Clip(c.Ours), conditions...)
	if s.Path == "" {
		_, until := s.Coll.Now().Expiry(store.PlaceFor)
		u = u.Add("$max", bson.E{Key: FieldExpireAt, Value: server.Date(until)})
		filter = append(filter, bson.E{Key: FieldExpireAt, Value: bson.D{{Key: "$gte", Value: bson.DateTime(0)}}})
	}
	image, err := s.Send(ctx, Command{Step: what, To: s.Coll.W1, Filter: filter, Update: bson.D(u)})
	if err == nil {
		c.Attempt.Answered(image.Reply, false)
	}
	c.placed = c.placed || err == nil || !store.IsCertain(server.Classified(err))
	return image, err
}

// Obstacle is Stand once the claim was refused, and finds whatever document is there: the line
// may be full, or have the place already. A full line first loses the places that are stale.
func (c *Claim) Obstacle(ctx context.Context) (Image, error) {
	image, err := c.Stand(ctx)
	if err != nil || image.Found() || c.Place == "" {
		return image, err
	}
	if image, err = c.Steps.Find(ctx, c.Asks); err != nil {
		return image, err
	}
	c.InLine = indexOf(image.Line, c.Place) >= 0
	if !c.InLine {
		if room, err := c.makeRoom(ctx, c.Steps.Status(c.Key, image.Document)); err != nil || !room {
			return image, err
		}
	}
	if again, err := c.Stand(ctx); err != nil || again.Found() {
		return again, err
	}
	return image, nil
}

// makeRoom takes the places that are stale out of a full line, and reports whether there were any.
func (c *Claim) makeRoom(ctx context.Context, seen store.Status) (bool, error) {
	s := c.Steps
	var gone []store.Place
	filter := slices.Clip(c.Ours)
	for _, w := range seen.Line {
		if seen.Stale(w) {
			gone = append(gone, w.Place)
			filter = append(filter, s.Path.unseen(w))
		}
	}
	if len(seen.Line) < store.LineMost || len(gone) == 0 {
		return false, nil
	}
	_, err := s.Send(ctx, Command{Step: StepOut, To: s.Coll.W1, Filter: filter, Update: append(bson.D(s.Path.Without(gone...)), s.Path.Timed())})
	return true, err
}

// Pass returns what a grant to a claim whose turn it is (store.Status.Turn) has to compare, and
// what it takes out of the line, as the line was seen: the claim's place, and before it those that
// do not count, or are passed. A place that its waiter was seen at since counts again.
//
// Behind other sharers a sharer may have the key too. What comes before it only vanishes, so nothing but its
// own place is compared.
func (c *Claim) Pass(seen store.Status) (still []bson.E, out server.Change) {
	lock, line, at := c.Steps.Path, seen.Line, indexOf(seen.Line, c.Place)
	switch {
	case len(line) == 0:
		return []bson.E{lock.Unawaited()}, nil
	case at < 0 || c.Place == "":
		at = len(line)
		still = append(still, bson.E{Key: lock.places(), Value: listed(Places(line))})
	case c.Mode != store.Exclusive:
		still = append(still, lock.Among(c.Place))
	}
	var gone []store.Place
	for n, w := range line[:min(at+1, len(line))] {
		if c.Mode == store.Exclusive && at < len(line) {
			still = append(still, lock.At(n, w.Place))
		}
		if n < at && !seen.Passes(&c.Claim, w) && !seen.Stale(w) {
			continue // shares the key
		}
		if n < at {
			still = append(still, lock.unseen(w))
		}
		gone = append(gone, w.Place)
	}
	return still, lock.Without(gone...)
}

// Offers returns the notices for the first in line that they may have a key which a late copy of a
// claim held for a moment. The engine does not know of that.
func Offers(freed store.Status) (all []store.Notice) {
	line := freed.Waiting("")
	for _, p := range line[:freed.Offered(line)] {
		if p.Address() != "" {
			all = append(all, store.Notice{Topic: store.TopicLocks, Key: freed.Key, Kind: store.KindOffered, To: p.Address(), Place: p})
		}
	}
	return all
}
