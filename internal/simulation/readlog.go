package simulation

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/docdb"
	"github.com/mongolock/mongolock/internal/history"
)

// readLog adds to the history what the database did. It reads the log of the last primary,
// so what was rolled back never happened. With w.mu held.
func (w *world) readLog() {
	m := w.cluster.leader
	if m == nil {
		return
	}
	owners := map[string]*mark{}
	for _, e := range m.db.Log(0) {
		by, ok := e.Tag.(*mark)
		if !ok {
			continue
		}
		switch e.NS {
		case lockDB + "." + lockColl:
			w.readLocks(e, by, owners)
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

// readLocks compares a lock's holders before and after a write.
func (w *world) readLocks(e docdb.Entry, by *mark, owners map[string]*mark) {
	before, _ := lookup(e.Before, "holders").(bson.D)
	after, _ := lookup(e.After, "holders").(bson.D)
	doc := e.After
	if doc == nil {
		doc = e.Before
	}
	key, _ := doc[0].Value.(string)
	event := func(kind history.Kind, id string, until time.Time) history.Event {
		return history.Event{At: by.at, Kind: kind, Client: by.client, Key: key, ID: id, Until: by.at + until.Sub(by.clock), Op: by.op}
	}
	for _, h := range before {
		until := expiry(h.Value)
		ended := event(history.Dropped, h.Key, until)
		ended.Live = until.After(by.clock.Add(w.plan.clockSkew))
		ended.Note = w.whose(owners[h.Key], by)
		now, still := lookup(after, h.Key).(bson.D)
		switch later := expiry(now); {
		case !still:
			w.add(ended)
		case later.Before(until) && lookup(now, "released") == nil:
			ended.Kind, ended.Until = history.Shortened, by.at+later.Sub(by.clock)
			w.add(ended)
		case !later.Equal(until):
			w.add(event(history.Extended, h.Key, later))
		}
	}
	for _, h := range after {
		if lookup(before, h.Key) == nil {
			if owners[h.Key] == nil {
				owners[h.Key] = by
			}
			w.add(event(history.Applied, h.Key, expiry(h.Value)))
			if w.reserved(e.Before, by) && lookup(e.After, "mode") != "exclusive" {
				w.add(event(history.Overtook, h.Key, expiry(h.Value)))
			}
		}
	}
}

// reserved reports whether a writer's word surely keeps others from sharing the key. In an
// exclusive document the word is that of a writer that was served.
func (w *world) reserved(lock bson.D, by *mark) bool {
	word, _ := lookup(lock, "exclusiveWantedUntil").(bson.DateTime)
	return lookup(lock, "mode") != "exclusive" && word.Time().After(by.clock.Add(w.plan.clockSkew))
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
