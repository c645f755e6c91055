package trace

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// A pathOperation is a command of package pathlock: what its filter names and its update
// writes, no more and no less.
type pathOperation struct {
	kind  string // add, finish, refresh, at once, remove, look; empty: none of these
	token string

	wants string        // of an add: the request, as a term
	lasts time.Duration // its timeout
	until bson.DateTime
	epoch bson.ObjectID // that it writes, or asks for
	rev   bson.ObjectID // that it writes

	named  bson.ObjectID // the revision that its filter names
	beyond bson.DateTime // the filter asks for a later end, by the same epoch

	numbers []int64 // of a look: by which it finds locks
	majorly bool
	class   class // of an add
}

// A class is the locks of one request: a look finds all of them or none.
type class struct {
	wants string
	on    int64
	under []int64
}

func (c class) foundBy(numbers []int64) bool {
	return slices.Contains(numbers, c.on) || slices.ContainsFunc(c.under, func(n int64) bool { return slices.Contains(numbers, n) })
}

// pathOperationOf reads a command. ok is false for one that is not about locks: reservations, indexes.
func pathOperationOf(c docdb.Command) (o pathOperation, ok bool) {
	switch c.Name {
	case "update":
		list := documents(field(c.Body, "updates"))
		if len(list) != 1 {
			return o, true
		}
		filter, _ := field(list[0], "q").(bson.D)
		update, _ := field(list[0], "u").(bson.D)
		o.filter(filter)
		o.adds(field(update, "$setOnInsert"))
	case "findAndModify":
		filter, _ := field(c.Body, "query").(bson.D)
		update, _ := field(c.Body, "update").(bson.D)
		o.filter(filter)
		if field(c.Body, "remove") == true {
			o.kind = "remove"
		} else {
			o.writes(update)
		}
	case "find":
		filter, _ := field(c.Body, "filter").(bson.D)
		concern, _ := field(c.Body, "readConcern").(bson.D)
		o.kind, o.numbers, o.majorly = "look", numbersOf(filter), field(concern, "level") == "majority"
		return o, len(o.numbers) > 0
	default:
		return o, false
	}
	return o, strings.HasPrefix(o.token, "urn:uuid:") || o.token == "" // else it is the reservation of the tree
}

func (o *pathOperation) filter(filter bson.D) {
	for _, e := range filter {
		condition, _ := e.Value.(bson.D)
		switch e.Key {
		case "_id":
			o.token, _ = e.Value.(string)
		case "rev":
			o.named, _ = e.Value.(bson.ObjectID)
		case "epoch":
			o.epoch, _ = e.Value.(bson.ObjectID)
		case "until":
			o.beyond, _ = field(condition, "$gt").(bson.DateTime)
		}
	}
}

func (o *pathOperation) adds(document any) {
	d, ok := document.(bson.D)
	if !ok {
		return
	}
	o.kind = "add"
	o.dates(d)
	o.wants = fmt.Sprintf(`[path |-> %q, depth |-> %q, mode |-> %q]`, field(d, "path"), field(d, "depth"), field(d, "mode"))
	o.class = class{wants: o.wants, on: number(field(d, "on"))}
	under, _ := field(d, "under").(bson.A)
	for _, n := range under {
		o.class.under = append(o.class.under, number(n))
	}
}

func (o *pathOperation) dates(d bson.D) {
	o.until, _ = field(d, "until").(bson.DateTime)
	o.rev, _ = field(d, "rev").(bson.ObjectID)
	if epoch, is := field(d, "epoch").(bson.ObjectID); is {
		o.epoch = epoch
	}
	o.lasts = time.Duration(number(field(d, "timeout")))
}

func (o *pathOperation) writes(update bson.D) {
	set, _ := field(update, "$set").(bson.D)
	most, _ := field(update, "$max").(bson.D)
	o.dates(append(slices.Clip(set), most...))
	switch {
	case field(most, "until") != nil:
		o.kind = "at once"
	case field(set, "until") != nil && field(set, "ttl") != nil:
		o.kind = "refresh"
	case field(set, "until") != nil:
		o.kind = "finish"
	}
}

// numbersOf are those by which a filter finds locks.
func numbersOf(filter bson.D) (all []int64) {
	for _, e := range filter {
		condition, _ := e.Value.(bson.D)
		list, _ := field(condition, "$in").(bson.A)
		switch e.Key {
		case "$or":
			for _, one := range documents(e.Value) {
				all = append(all, numbersOf(one)...)
			}
		case "on", "under":
			for _, n := range list {
				all = append(all, number(n))
			}
		}
	}
	return all
}
