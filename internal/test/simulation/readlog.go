package simulation

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// readLog adds to the history what the database did. It reads the log of the last primary,
// so what was rolled back never happened. No date of a server judges: a holder is live as
// long as it may be trusted, in the history's own time. With w.mu held.
func (w *world) readLog() {
	r := logReader{w, map[string]*mark{}, map[string]time.Duration{}, map[string]time.Duration{}}
	for _, e := range w.writes() {
		by := e.Tag.(*mark)
		switch e.NS {
		case lockDB + "." + lockColl:
			r.readLocks(e, by)
			r.readLine(e, by)
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
			e.Over = r.silent[id]
		}
		return e
	}
	for _, h := range before {
		until := expiry(h.Value)
		ended := event(history.Dropped, h.Key, until)
		ended.Live = by.at < r.live[h.Key]-r.plan.clockSkew-r.plan.ttl/1000
		ended.Note = r.whose(r.owners[h.Key], by)
		if ended.Note == "" && lookup(h.Value.(bson.D), "broken") != nil {
			ended.Note = history.Broken
		}
		now, still := lookup(after, h.Key).(bson.D)
		if still {
			r.written(h.Key, h.Value.(bson.D), now, by)
		}
		switch later := expiry(now); {
		case !still:
			r.add(ended)
		case later.Before(until) && lookup(now, "released") == nil:
			ended.Kind, ended.Until, ended.Over = history.Shortened, by.at+later.Sub(by.clock), r.silent[h.Key]
			r.add(ended)
		case !later.Equal(until) || compareBeats(h.Value, now):
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
			if at, refused := r.refused[by.write]; refused && at < by.at {
				applied.Note = history.Late
			}
			mode, _ := lookup(e.After, "mode").(string)
			weight, _ := lookup(h.Value.(bson.D), "weight").(int32)
			applied.Mode = r.modeOf(mode, int(weight), applied.Op)
			applied.Place = claimed(r.stands(e.Before, by), r.stands(e.After, by), by.client)
			r.add(applied)
		}
	}
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
