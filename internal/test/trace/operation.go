package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// An operation is a command, or a statement of one, as the specification knows it: what its
// filter names and its update writes, no more and no less.
type operation struct {
	kind string // a row of §4.4; empty: none
	key  string
	id   string // of the holder that it is about

	mode  string
	joins bool // it writes no mode: that of those who are there stays
	beat  int64
	epoch bson.ObjectID
	end   bson.DateTime
	lasts int64 // its ttl, in milliseconds

	rev   int64   // that it writes
	moves bool    // it writes the next revision instead
	named int64   // that its filter names
	drop  []sight // the holders that the filter names with their beats
	old   string  // the holder whose place it takes, or that it removes too

	earlier   bool          // the filter asks for an earlier beat
	judged    bool          // it asks that the holder has not run out at recent, or is of another epoch
	recent    bson.DateTime // of judged
	exclusive bool          // it asks for an exclusive holder
	unheld    bool          // it asks that nobody holds the key
	sharable  bool          // it asks that nobody holds the key, or readers do
	stays     bool          // it takes a holder out of a document that stays
	majorly   bool          // it reads what a majority has

	line standing
}

// A standing is what a command asks of the line, and what it does to it.
type standing struct {
	nobody bool     // it asks that nobody is in line
	whole  []string // that these are, and nobody else
	spots  []spot   // that these are where they are
	dated  bool     // when waiters were seen: the specification does not know that
	out    []string // the places that it takes out
	joins  string   // the place that comes
	behind int      // how many places it joins behind; -1: all
}

// A spot is where a place is in line: at n, or anywhere if n is negative.
type spot struct {
	n     int
	place string
}

// asks reports whether it matters to the command who is in line.
func (s standing) asks() bool { return s.nobody || len(s.whole) > 0 || len(s.spots) > 0 }

// A sight is a beat of a holder.
type sight struct {
	id   string
	beat int64
}

// operations are what a command does to locks.
func operations(c docdb.Command) []operation {
	switch c.Name {
	case "findAndModify":
		filter, _ := field(c.Body, "query").(bson.D)
		update, _ := field(c.Body, "update").(bson.D)
		remove, _ := field(c.Body, "remove").(bool)
		upsert, _ := field(c.Body, "upsert").(bool)
		concern, _ := field(c.Body, "writeConcern").(bson.D)
		durable, _ := field(concern, "j").(bool)
		return []operation{read(filter, update, remove, upsert, durable)}
	case "update":
		return renewals(c.Body)
	case "find":
		return looks(c.Body)
	}
	return nil
}

// renewals are the statements of a bulk.
func renewals(body bson.D) (all []operation) {
	concern, _ := field(body, "writeConcern").(bson.D)
	durable, _ := field(concern, "j").(bool)
	for _, statement := range documents(field(body, "updates")) {
		filter, _ := field(statement, "q").(bson.D)
		update, _ := field(statement, "u").(bson.D)
		upsert, _ := field(statement, "upsert").(bool)
		all = append(all, read(filter, update, false, upsert, durable))
	}
	return all
}

// looks are a find, for each key that it asks for.
func looks(body bson.D) (all []operation) {
	filter, _ := field(body, "filter").(bson.D)
	concern, _ := field(body, "readConcern").(bson.D)
	majorly := field(concern, "level") == "majority"
	switch by := field(filter, "_id").(type) {
	case string:
		return []operation{{kind: "look", key: by, majorly: majorly}}
	case bson.D:
		keys, _ := field(by, "$in").(bson.A)
		for _, k := range keys {
			all = append(all, operation{kind: "look", key: fmt.Sprint(k), majorly: majorly})
		}
	}
	return all
}

// read tells the row of a command. The order of the cases matters: what a row writes tells it
// from the others.
func read(filter, update bson.D, remove, upsert, durable bool) operation {
	o := operation{}
	o.filter(filter)
	w := o.writes(update)
	switch {
	case remove && o.id != "" && durable:
		o.kind = "undo"
	case remove && o.id != "":
		o.kind = "release"
	case remove:
		o.kind = "delete"
	case w.whole && upsert:
		o.kind = "insert"
	case w.whole && w.several: // which no command should
		o.kind, o.mode, o.joins = "join", "shared", true
	case w.whole:
		o.kind = "swap" // or a transfer, which the revision's writer tells
	case w.adds:
		if o.kind = "join"; o.mode == "" {
			o.mode, o.joins = "shared", true
		}
	case w.leaves && o.exclusive && durable:
		o.kind, o.stays = "undo", true
	case w.leaves && o.exclusive:
		o.kind, o.stays = "release", true
	case w.leaves && w.rev:
		o.kind = "undo-join"
	case w.leaves:
		o.kind = "leave"
	case w.released:
		o.kind = "min-hold"
	case w.broken:
		o.kind = "break"
	case w.ends:
		o.kind = "renew"
	case !w.holders && !w.rev:
		o.kind = "note" // who waits, dates, and what only reads the clock
	}
	return o
}

func (o *operation) filter(filter bson.D) {
	for _, e := range filter {
		id, name, ofHolder := holderPath(e.Key)
		condition, _ := e.Value.(bson.D)
		switch {
		case e.Key == "_id":
			o.key, _ = e.Value.(string)
		case e.Key == "rev":
			o.named = number(e.Value)
		case e.Key == "holders":
			o.unheld = o.unheld || len(condition) == 0 // else it asks for the type
		case e.Key == "mode":
			o.exclusive = e.Value == "exclusive"
		case e.Key == "line" || strings.HasPrefix(e.Key, "line.") || strings.HasPrefix(e.Key, "waits."):
			o.line.filter(e)
		case e.Key == "$and":
			for _, conditions := range documents(e.Value) {
				o.either(documents(field(conditions, "$or")))
			}
		case ofHolder && field(condition, "$exists") == false && name == "": // it asks for the type, too
		case ofHolder && name == "" && field(condition, "$exists") == true:
			o.id, o.old = id, id
		case ofHolder && name == "beat" && condition == nil:
			beat, _ := e.Value.(int64)
			o.drop = append(o.drop, sight{id, beat})
		case ofHolder && name == "beat" && field(condition, "$lt") != nil:
			o.id, o.earlier = id, true
		case ofHolder && o.id == "":
			o.id = id
		}
	}
}

func (s *standing) filter(e bson.E) {
	place, is := e.Value.(string)
	n, err := strconv.Atoi(strings.TrimPrefix(e.Key, "line."))
	switch {
	case strings.HasPrefix(e.Key, "waits."):
		s.dated = s.dated || strings.HasSuffix(e.Key, ".seen")
	case e.Key == "line" && is:
		s.spots = append(s.spots, spot{-1, place})
	case e.Key == "line":
		list, _ := e.Value.(bson.A)
		s.whole = names(list)
	case is && err == nil:
		s.spots = append(s.spots, spot{n, place})
	case n == 0:
		s.nobody = true
	}
}

func names(list bson.A) (all []string) {
	for _, v := range list {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// either reads an $or, of which the protocol has four.
func (o *operation) either(alternatives []bson.D) {
	for i, d := range alternatives {
		if len(d) == 0 {
			continue
		}
		id, name, ofHolder := holderPath(d[0].Key)
		condition, _ := d[0].Value.(bson.D)
		switch {
		case d[0].Key == "holders":
			o.sharable = true
		case d[0].Key == "rev":
			o.named = number(d[0].Value)
		case ofHolder && name == "expireAt":
			o.recent, o.judged = field(condition, "$gt").(bson.DateTime)
		case ofHolder && name == "" && i == 0:
			o.id = id
		case ofHolder && name == "":
			o.old = id // that a hand-over was to replace
		}
	}
}

// A writing is what an update writes.
type writing struct{ whole, several, adds, leaves, released, broken, ends, rev, holders bool }

func (o *operation) writes(update bson.D) (w writing) {
	for _, op := range update {
		fields, _ := op.Value.(bson.D)
		for _, f := range fields {
			id, name, ofHolder := holderPath(f.Key)
			switch {
			case f.Key == "line":
				o.line.change(op.Key, f.Value)
			case op.Key == "$unset" && ofHolder:
				w.leaves, w.holders = !w.adds && (name == "" || w.leaves), true
			case f.Key == "holders":
				all, _ := f.Value.(bson.D)
				w.whole, w.several, w.holders = true, len(all) > 1, true
				o.takes(all[0])
			case f.Key == "mode":
				o.mode, _ = f.Value.(string)
			case f.Key == "rev":
				w.rev = true
				o.rev, o.moves = number(f.Value), op.Key == "$inc"
			case ofHolder && name == "":
				w.adds, w.holders, w.leaves = true, true, false
				o.takes(bson.E{Key: id, Value: f.Value})
			case ofHolder:
				w.holders = true
				o.of(&w, name, f.Value)
			}
		}
	}
	return w
}

func (s *standing) change(operator string, v any) {
	list, several := v.(bson.A)
	place, _ := v.(string)
	switch {
	case operator == "$set": // it was passed, and joins among those that the filter names
		for i, p := range names(list) {
			if !slices.Contains(s.whole, p) {
				s.joins, s.behind = p, i
			}
		}
	case operator == "$push":
		s.joins, s.behind = place, -1
	case several:
		s.out = names(list)
	default:
		s.out = []string{place}
	}
}

// takes reads the holder that a claim writes of itself.
func (o *operation) takes(holder bson.E) {
	o.id = holder.Key
	d, _ := holder.Value.(bson.D)
	for _, f := range d {
		o.of(new(writing), f.Key, f.Value)
	}
}

func (o *operation) of(w *writing, name string, v any) {
	switch name {
	case "expireAt":
		w.ends = true
		o.end, _ = v.(bson.DateTime)
	case "beat":
		o.beat = number(v)
	case "epoch":
		o.epoch, _ = v.(bson.ObjectID)
	case "ttl":
		o.lasts = number(v)
	case "released":
		w.released = true
	case "broken":
		w.broken = true
	}
}
