package trace

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// A sessionOperation is what a command of a client with a session does to one key, or to
// the document of a session.
type sessionOperation struct {
	operation
	session string // whose document it is about; empty: it is about a key
	voted   bool   // a majority acknowledges it
	names   string // the session that it puts a holder under
	seen    string // the session that its filter asks for
	says    bool   // which it does, or asks that there is none
	leaves  bool   // it takes the holder out of its session
	shares  bool   // it is about holders that share a key
}

// sessionOperations are what a command does to keys and to sessions. Looks, and what is about the line alone, do nothing to either.
func sessionOperations(c docdb.Command) (all []sessionOperation) {
	concern, _ := field(c.Body, "writeConcern").(bson.D)
	voted := field(concern, "w") == "majority"
	durable, _ := field(concern, "j").(bool)
	add := func(filter, update bson.D, remove, upsert bool) {
		if together := entrances(filter, update); together != nil {
			all = append(all, together...)
			return
		}
		for _, one := range parts(filter) {
			all = append(all, readSessions(one, update, remove, upsert, durable))
		}
	}
	switch c.Name {
	case "findAndModify":
		filter, _ := field(c.Body, "query").(bson.D)
		update, _ := field(c.Body, "update").(bson.D)
		remove, _ := field(c.Body, "remove").(bool)
		upsert, _ := field(c.Body, "upsert").(bool)
		add(filter, update, remove, upsert)
	case "update", "delete":
		for _, statement := range documents(field(c.Body, c.Name+"s")) {
			filter, _ := field(statement, "q").(bson.D)
			update, _ := field(statement, "u").(bson.D)
			upsert, _ := field(statement, "upsert").(bool)
			add(filter, update, c.Name == "delete", upsert)
		}
	}
	for i := range all {
		o := &all[i]
		o.voted = voted
		switch {
		case o.kind == "join" || o.kind == "leave" && !o.leaves || o.kind == "undo-join":
			o.shares = true
		case o.mode != "" && o.mode != "exclusive":
			o.shares = true
		}
		o.row()
	}
	return all
}

// readSessions reads a statement about one document.
func readSessions(filter, update bson.D, remove, upsert, durable bool) sessionOperation {
	if name, ok := field(filter, "_id").(bson.D); ok {
		return ofSession(name, filter, update, remove, upsert)
	}
	o := sessionOperation{operation: read(filter, update, remove, upsert, durable)}
	o.asksFor(filter)
	set, _ := field(update, "$set").(bson.D)
	unset, _ := field(update, "$unset").(bson.D)
	o.names, _ = field(set, "session").(string)
	o.leaves = field(unset, "session") != nil
	for _, f := range set {
		if _, name, _ := holderPath(f.Key); name == "session" {
			o.names, _ = f.Value.(string)
		}
	}
	if o.kind == "join" { // it may name holders that stay, too
		o.drop = slices.DeleteFunc(o.drop, func(d sight) bool { return field(unset, "holders."+d.id) == nil })
	}
	return o
}

func (o *sessionOperation) asksFor(filter bson.D) {
	v := field(filter, "session")
	o.seen, _ = v.(string)
	o.says = v != nil
}

// row is the row of §4.11 that the operation is, where that is another than of §4.4.
func (o *sessionOperation) row() {
	if o.old == o.id {
		o.old = ""
	}
	switch {
	case o.session != "":
	case o.kind == "insert":
		o.kind, o.rev, o.named, o.says = "claim", o.named, 0, true // there is no holder
	case o.kind == "swap" && (len(o.drop) > 0 || o.mode != "exclusive" || o.line.asks()):
		o.kind = "claim"
	case o.kind == "swap":
		o.kind = "hand over"
	case o.kind == "renew" && o.leaves:
		o.kind = "leave"
	case (o.kind == "delete" || o.kind == "leave" || o.stays) && len(o.drop) == 1:
		o.kind, o.id = "sweep", o.drop[0].id
	case o.kind == "leave":
		o.kind = "release"
	case o.kind == "undo-join":
		o.kind = "undo"
	case o.kind == "release" && o.says:
		o.kind = "sweep"
	case o.kind == "delete" && o.unheld:
		o.kind = "last" // an empty document
	case o.kind == "delete":
		o.kind = "release" // by key
	}
}

// ofSession reads a statement about a session's document.
func ofSession(name, filter, update bson.D, remove, upsert bool) sessionOperation {
	o := sessionOperation{}
	o.session, _ = field(name, "session").(string)
	o.id = o.session
	set, _ := field(update, "$set").(bson.D)
	most, _ := field(update, "$max").(bson.D)
	o.beat = number(field(set, "beat"))
	o.epoch, _ = field(set, "epoch").(bson.ObjectID)
	o.lasts, o.end = number(field(set, "ttl")), date0(field(set, "expireAt"))
	switch {
	case remove:
		o.kind = "clear"
	case field(set, "dead") != nil && upsert:
		o.kind = "mark"
		if beat := beatIn(filter); beat != 0 {
			o.drop = []sight{{o.session, beat}}
		}
	case field(set, "dead") != nil:
		o.kind = "end"
	case upsert:
		o.kind = "begin"
		if o.beat == 0 {
			o.beat = beatIn(filter)
		}
	case field(most, "expireAt") != nil:
		o.kind = "keep"
		o.lasts, o.end = number(field(most, "ttl")), date0(field(most, "expireAt"))
	case o.session != "":
		o.kind = "note" // that a holder was broken
	}
	return o
}

func date0(v any) bson.DateTime {
	d, _ := v.(bson.DateTime)
	return d
}

// beatIn finds the beat that a filter names.
func beatIn(filter bson.D) int64 {
	for _, e := range filter {
		if e.Key == "beat" {
			return number(e.Value)
		}
		for _, d := range documents(e.Value) {
			if beat := beatIn(d); beat != 0 {
				return beat
			}
		}
	}
	return 0
}

// entrances are an update that puts many holders under a session, one for each of its keys. Each names the revision
// of a grant.
func entrances(filter, update bson.D) (all []sessionOperation) {
	ids, _ := field(filter, "_id").(bson.D)
	keys, _ := field(ids, "$in").(bson.A)
	of, _ := field(filter, "rev").(bson.D)
	revs, _ := field(of, "$in").(bson.A)
	set, _ := field(update, "$set").(bson.D)
	session, _ := field(set, "session").(string)
	if session == "" || len(keys) != len(revs) {
		return nil
	}
	for i, k := range keys {
		key, _ := k.(string)
		all = append(all, sessionOperation{operation: operation{kind: "enter", key: key, named: number(revs[i])}, names: session})
	}
	return all
}
