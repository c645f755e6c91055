package simulation

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/store"
)

// A place is that of a waiter in line, as the database has it.
type place struct {
	name   string
	client int
	seen   time.Time     // by the server's clock
	since  time.Duration // when it joined the line, on the history's clock; 0: clocks are too far apart to tell
	until  time.Duration // when it is stale; likewise
}

// stands returns the line of a lock, as a document has it when a write is made.
func (r logReader) stands(doc bson.D, by *mark) (line []place) {
	names, _ := lookup(doc, "line").(bson.A)
	waits, _ := lookup(doc, "waits").(bson.D)
	for _, v := range names {
		name, _ := v.(string)
		of, _ := lookup(waits, name).(bson.D)
		owner, _ := lookup(of, "owner").(string)
		p := place{name: name, client: clientOf(owner)}
		seen, _ := lookup(of, "seen").(bson.DateTime)
		if p.seen = seen.Time(); !r.clocksMoved(by) {
			since, _ := lookup(of, "since").(bson.DateTime)
			p.since, p.until = by.at+since.Time().Sub(by.clock), by.at+p.seen.Add(store.PlaceFor).Sub(by.clock)
		}
		line = append(line, p)
	}
	return line
}

// clocksMoved reports whether dates may be by another clock than that which judges them, while a
// place counts.
func (w *world) clocksMoved(by *mark) bool {
	return w.plan.apart && (by.at+store.PlaceFor >= w.moved || w.plan.servers == routers)
}

// readLine notes what a write made of a line.
func (r logReader) readLine(e docdb.Entry, by *mark) {
	doc := e.After
	if doc == nil {
		doc = e.Before
	}
	key, _ := doc[0].Value.(string)
	base := history.Event{At: by.at, Began: by.began, Client: by.client, Key: key, Op: r.opOf(by.op, key)}
	if by.sweep {
		base.Note = history.Swept
	}
	for _, e := range lineEvents(r.stands(e.Before, by), r.stands(e.After, by), base) {
		r.add(e)
	}
}

// lineEvents says what has become of a line. A place that stands there twice is new each time.
func lineEvents(before, after []place, e history.Event) (all []history.Event) {
	add := func(kind history.Kind, p place) {
		e.Kind, e.Place, e.Owner, e.Until = kind, p.name, p.client, p.until
		all = append(all, e)
	}
	rest := slices.Clone(before)
	for n, p := range after {
		i := slices.IndexFunc(rest, func(o place) bool { return o.name == p.name })
		switch {
		case i < 0:
			if n+1 < len(after) {
				e.Behind = after[n+1].name
			}
			e.Since = p.since
			add(history.Stood, p)
			e.Behind, e.Since = "", 0
			continue
		case !rest[i].seen.Equal(p.seen):
			add(history.Waits, p)
		}
		rest = slices.Delete(rest, i, i+1)
	}
	for _, p := range rest {
		add(history.Left, p)
	}
	return all
}

// claimed returns the place of a client that a grant to it took out of the line. A claim passes what is
// left there of an earlier wait of its client.
func claimed(before, after []place, client int) string {
	for _, p := range slices.Backward(before) {
		if p.client == client && !slices.ContainsFunc(after, func(o place) bool { return o.name == p.name }) {
			return p.name
		}
	}
	return ""
}

// modeOf returns the mode of a holder that a call was granted. The database does not keep how many
// permits the call allows.
func (w *world) modeOf(mode string, weight, op int) history.Mode {
	switch store.Mode(mode) {
	case store.Exclusive:
		return history.Mode{}
	case store.Permits:
		return history.Mode{Shared: true, Limit: max(1, weight, w.allows[op]), Weight: weight}
	}
	return history.Mode{Shared: true}
}

// clientOf is the number of the client that an owner names.
func clientOf(owner string) (client int) {
	_, _ = fmt.Sscanf(owner, "client-%d", &client)
	return client
}
