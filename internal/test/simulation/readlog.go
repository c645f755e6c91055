package simulation

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// readLog adds to the history what the database did. It reads the log of the last primary,
// so what was rolled back never happened. No date of a server judges: a holder is live as
// long as it may be trusted, in the history's own time. With w.mu held.
func (w *world) readLog() {
	r := logReader{w, map[string]*mark{}, map[string]time.Duration{}, map[string]time.Duration{}, map[string]sessionLog{}, map[string]heldUnder{}}
	for _, e := range w.writes() {
		by := e.Tag.(*mark)
		switch e.NS {
		case lockDB + "." + lockColl:
			r.readLocks(e, by)
			r.readLine(e, by)
			r.readSession(e, by)
		case lockDB + "." + regColl:
			if token, ok := lookup(e.After, "_fence").(int64); ok {
				w.add(history.Event{At: by.at, Kind: history.Register, Client: by.client, Key: e.After[0].Value.(string), Token: token})
			}
		}
	}
	w.history.Sort()
}

func (w *world) add(e history.Event) { w.history.Events = append(w.history.Events, e) }

func lookup(d bson.D, key string) any {
	for _, e := range d {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

// A logReader remembers of each holder, by its ID, what its writes so far say.
type logReader struct {
	*world
	owners map[string]*mark
	live   map[string]time.Duration // until when its owner may trust it
	silent map[string]time.Duration // when it is over by its silence: nothing was written for its TTL

	sessions map[string]sessionLog // by ID
	under    map[string]heldUnder  // by ID of the holder
}

// A sessionLog is what the writes of a session say so far: until when its process may trust
// it, when it ends by the clock of the history, and when it is over by its silence.
type sessionLog struct{ live, until, silent time.Duration }

// A heldUnder is a holder of a session.
type heldUnder struct {
	key, session string
	own          time.Duration // its own end
}

// readSession notes what a write of a session's document means for the holders under it.
func (r logReader) readSession(e docdb.Entry, by *mark) {
	doc := e.After
	if doc == nil {
		doc = e.Before
	}
	name, _ := doc[0].Value.(bson.D)
	id, _ := lookup(name, "session").(string)
	s := r.sessions[id]
	switch {
	case id == "" || e.After == nil:
		return
	case lookup(doc, "dead") != nil: // its own process marks it once it no longer trusts it
		if r.owners[id] != nil && r.owners[id].client == by.client {
			s.live = min(s.live, by.began)
			r.sessions[id] = s
		}
		return
	case lookup(e.Before, "beat") == lookup(doc, "beat"):
		return
	case r.owners[id] == nil:
		r.owners[id] = by
	}
	ttl, _ := milliseconds(lookup(doc, "ttl"))
	until := by.at + expiry(doc).Sub(by.clock)
	s.live, s.until = max(s.live, min(by.began+ttl, until)), max(s.until, until)
	s.silent = by.at + ttl
	r.sessions[id] = s
	var held []string
	for holder, h := range r.under {
		if h.session == id {
			held = append(held, holder)
		}
	}
	slices.Sort(held)
	for _, holder := range held {
		r.add(history.Event{At: by.at, Kind: history.Extended, Client: by.client, Key: r.under[holder].key, ID: holder, Until: r.ends(holder, max(r.under[holder].own, until)), Over: r.over(holder), Op: by.op})
	}
}

// over is when others may know that a holder is over, at the earliest: the later of its own
// silence and its session's.
func (r logReader) over(id string) time.Duration {
	return max(r.silent[id], r.sessions[r.under[id].session].silent)
}

// trusted is until when the owner of a holder may trust it, by its own end or its session's.
func (r logReader) trusted(id string) time.Duration {
	return max(r.live[id], r.sessions[r.under[id].session].live)
}

// ends is the later of a holder's own end and its session's.
func (r logReader) ends(id string, own time.Duration) time.Duration {
	s := r.sessions[r.under[id].session]
	if r.plan.apart {
		return max(own, r.trusted(id))
	}
	return max(own, s.until)
}

// readLocks compares a lock's holders before and after a write.
func (r logReader) readLocks(e docdb.Entry, by *mark) {
	before, _ := lookup(e.Before, "holders").(bson.D)
	after, _ := lookup(e.After, "holders").(bson.D)
	doc := e.After
	if doc == nil {
		doc = e.Before
	}
	key, _ := doc[0].Value.(string)
	event := func(kind history.Kind, id string, until time.Time) history.Event {
		e := history.Event{At: by.at, Began: by.began, Kind: kind, Client: by.client, Key: key, ID: id, Until: by.at + until.Sub(by.clock), Op: r.opOf(by.op, key)}
		if r.plan.apart {
			e.Until, e.Written = r.live[id], e.Until
		}
		if kind != history.Dropped {
			e.Until, e.Over = r.ends(id, e.Until), r.over(id)
		}
		return e
	}
	for _, h := range before {
		until := expiry(h.Value)
		ended := event(history.Dropped, h.Key, until)
		ended.Live = by.at < r.trusted(h.Key)-r.plan.clockSkew-r.plan.ttl/1000
		ended.Note = r.whose(r.owners[h.Key], by)
		if ended.Note == "" && lookup(h.Value.(bson.D), "broken") != nil {
			ended.Note = history.Broken
		}
		now, still := lookup(after, h.Key).(bson.D)
		entered := false
		if still {
			r.written(h.Key, h.Value.(bson.D), now, by)
			entered = r.goesUnder(key, h.Key, now, e.After, by.at+expiry(now).Sub(by.clock))
		} else {
			delete(r.under, h.Key)
		}
		switch later := expiry(now); {
		case !still:
			r.add(ended)
		case later.Before(until) && lookup(now, "released") == nil:
			ended.Kind, ended.Until, ended.Over = history.Shortened, by.at+later.Sub(by.clock), r.over(h.Key)
			r.add(ended)
		case !later.Equal(until) || compareBeats(h.Value, now) || entered:
			r.add(event(history.Extended, h.Key, later))
		}
	}
	for _, h := range after {
		if lookup(before, h.Key) == nil {
			if r.owners[h.Key] == nil {
				r.owners[h.Key] = by
			}
			r.written(h.Key, nil, h.Value.(bson.D), by)
			applied := event(history.Applied, h.Key, expiry(h.Value))
			if lookup(h.Value.(bson.D), "lingers") != nil {
				applied.Note = history.Lingers
			}
			if at, refused := r.refused[by.write]; refused && at < by.at {
				applied.Note = history.Late
			}
			applied.Mode = modeOf(e.After)
			weight, _ := lookup(h.Value.(bson.D), "weight").(int32)
			applied.Mode.Weight = int(weight)
			applied.Place = claimed(r.stands(e.Before, by), r.stands(e.After, by), by.client)
			r.add(applied)
		}
	}
}

// goesUnder notes which session a holder is under: that of an exclusive one stands in its
// document. It reports whether it came under one.
func (r logReader) goesUnder(key, id string, holder, doc bson.D, own time.Duration) bool {
	if lookup(doc, "mode") == "exclusive" {
		holder = doc
	}
	before := r.under[id].session
	session, has := lookup(holder, "session").(string)
	if has {
		r.under[id] = heldUnder{key, session, own}
	} else {
		delete(r.under, id)
	}
	return has && session != before
}

// written notes until when a holder may be trusted that this write shows: for its TTL, from
// before the write was sent, and no longer than its expiry says by the clock that the reply
// tells. A write of others that leaves it as it was says nothing.
func (r logReader) written(id string, before, now bson.D, by *mark) {
	if expiry(before).Equal(expiry(now)) && !compareBeats(before, now) {
		return
	}
	ttl := r.plan.ttl
	if ms, has := milliseconds(lookup(now, "ttl")); has {
		ttl = ms
	}
	until := min(by.began+ttl, by.at+expiry(now).Sub(by.clock))
	if lookup(now, "released") == nil { // MinHold ends it sooner
		until = max(until, r.live[id])
	}
	r.live[id], r.silent[id] = until, by.at+ttl
}

func milliseconds(v any) (time.Duration, bool) {
	switch n := v.(type) {
	case int32:
		return time.Duration(n) * time.Millisecond, true
	case int64:
		return time.Duration(n) * time.Millisecond, true
	}
	return 0, false
}

// compareBeats reports whether a holder has another beat than before.
func compareBeats(before, now any) bool {
	a, _ := before.(bson.D)
	b, _ := now.(bson.D)
	return lookup(a, "beat") != lookup(b, "beat")
}

// whose returns the Note of a dropped holder.
func (w *world) whose(owner, by *mark) string {
	switch {
	case by.sweep:
		return history.Swept
	case owner != nil && owner.client == by.client:
		return history.Ours
	}
	return ""
}

func expiry(holder any) time.Time {
	d, _ := holder.(bson.D)
	t, _ := lookup(d, "expireAt").(bson.DateTime)
	return time.UnixMilli(int64(t)).UTC()
}
