package vectors

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The collections of a vector, under each write concern that the library uses. The client that
// reads the outcome is another one, whose commands are not observed.
const (
	durable = "durable" // majority, journalled
	voted   = "voted"   // majority
	quick   = "quick"   // w: 1
	wakes   = "wakes"
	outcome = "outcome"

	wakeSize = 256 << 10
)

var concerns = map[string]bson.D{
	durable: {{Key: "w", Value: "majority"}, {Key: "j", Value: true}},
	voted:   {{Key: "w", Value: "majority"}},
	quick:   {{Key: "w", Value: int32(1)}},
}

// made makes the vector of a state.
func made(t testing.TB, of state) bson.D {
	t.Helper()
	var before bson.A
	var tests bson.A
	for _, one := range of.steps {
		initial, test := record(t, of, one)
		if before != nil {
			require.Equal(t, before, initial, "%s: the state is another one each time", of.name)
		}
		before, tests = initial, append(tests, test)
	}
	return bson.D{
		{Key: "description", Value: of.says},
		{Key: "schemaVersion", Value: "1.9"}, // of createOptions
		{Key: "createEntities", Value: entities()},
		{Key: "initialData", Value: bson.A{
			bson.D{{Key: "databaseName", Value: database}, {Key: "collectionName", Value: locks}, {Key: "documents", Value: before}},
			bson.D{
				{Key: "databaseName", Value: database}, {Key: "collectionName", Value: wakeUps},
				{Key: "createOptions", Value: bson.D{{Key: "capped", Value: true}, {Key: "size", Value: int32(wakeSize)}}},
				{Key: "documents", Value: bson.A{}},
			},
		}},
		{Key: "tests", Value: tests},
	}
}

func entities() bson.A {
	collection := func(id, db, name string, more ...bson.E) bson.D {
		of := bson.D{{Key: "id", Value: id}, {Key: "database", Value: db}, {Key: "collectionName", Value: name}}
		return bson.D{{Key: "collection", Value: append(of, more...)}}
	}
	under := func(id, name string, concern bson.D) bson.D {
		named := make(bson.D, len(concern))
		for i, e := range concern {
			if named[i] = e; e.Key == "j" {
				named[i].Key = "journal"
			}
		}
		return collection(id, "database", name, bson.E{Key: "collectionOptions", Value: bson.D{
			{Key: "readConcern", Value: bson.D{{Key: "level", Value: "local"}}}, {Key: "writeConcern", Value: named},
		}})
	}
	databaseOf := func(id, client string) bson.D {
		return bson.D{{Key: "database", Value: bson.D{{Key: "id", Value: id}, {Key: "client", Value: client}, {Key: "databaseName", Value: database}}}}
	}
	return bson.A{
		bson.D{{Key: "client", Value: bson.D{{Key: "id", Value: "client"}, {Key: "observeEvents", Value: bson.A{"commandStartedEvent"}}}}},
		databaseOf("database", "client"),
		under(durable, locks, concerns[durable]),
		under(voted, locks, concerns[voted]),
		under(quick, locks, concerns[quick]),
		under(wakes, wakeUps, concerns[quick]),
		bson.D{{Key: "client", Value: bson.D{{Key: "id", Value: "reader"}}}},
		databaseOf("read", "reader"),
		collection(outcome, "read", locks),
	}
}

// record has a step done, and returns the state before it and the test.
func record(t testing.TB, of state, one step) (before bson.A, test bson.D) {
	t.Helper()
	s := newFixture(t)
	of.before(s)
	f := &fixer{began: s.began}
	all := s.documents()
	for _, d := range all {
		f.learn(d)
	}
	from := len(s.sent)
	time.Sleep(5 * time.Millisecond) // dates of the step are other ones
	one.do(s)
	require.Less(t, time.Since(s.began), tick/2, "this machine is too slow to tell the dates apart")
	s.sent = slices.DeleteFunc(s.sent[from:], func(x exchange) bool { return slices.Contains(asides, x.command.Index(0).Key()) })
	for _, x := range s.sent {
		f.learn(read(t, x.command))
		f.learn(read(t, x.reply))
	}
	before = bson.A{}
	for _, d := range all {
		before = append(before, f.command(d))
	}
	f.before = all
	var operations, events bson.A
	for _, x := range s.sent {
		operation, event := operationOf(t, f, x)
		operations = append(operations, operation)
		events = append(events, bson.D{{Key: "commandStartedEvent", Value: bson.D{{Key: "command", Value: event}}}})
	}
	after := bson.A{}
	for _, d := range s.documents() {
		f.learn(d)
		after = append(after, f.document(d))
	}
	operations = append(operations, bson.D{
		{Key: "name", Value: "find"}, {Key: "object", Value: outcome},
		{Key: "arguments", Value: bson.D{{Key: "filter", Value: bson.D{}}}}, {Key: "expectResult", Value: after},
	})
	return before, bson.D{
		{Key: "description", Value: one.says},
		{Key: "operations", Value: operations},
		{Key: "expectEvents", Value: bson.A{bson.D{{Key: "client", Value: "client"}, {Key: "events", Value: events}}}},
	}
}

// asides are commands by which the library learns of the server: the page tells of them.
var asides = []string{"hello", "isMaster", "listCollections", "ping"}

func read(t testing.TB, raw bson.Raw) (d bson.D) {
	t.Helper()
	require.NoError(t, bson.Unmarshal(raw, &d))
	return d
}

// An operation is a command as a driver's user sends it.
type operation struct {
	name, object string
	arguments    bson.D
	result       any // nil if nothing was found
}

// What a driver adds to a command. Whatever else a command has is in the vector.
var added = []string{"lsid", "txnNumber", "$db", "$clusterTime", "$readPreference", "maxTimeMS", "batchSize", "singleBatch", "ordered"}

// operationOf turns a command into the operation by which a driver sends it, and into what is
// seen of it then.
func operationOf(t testing.TB, f *fixer, x exchange) (does, event bson.D) {
	t.Helper()
	reply, command := read(t, x.reply), read(t, x.command)
	command = slices.DeleteFunc(command, func(e bson.E) bool { return slices.Contains(added, e.Key) })
	var o operation
	switch name := command[0].Key; name {
	case "findAndModify":
		o = modification(t, command, reply)
	case "find":
		o = operation{"find", quick, bson.D{{Key: "filter", Value: at(command, "filter")}}, at(reply, "cursor.firstBatch")}
		if i := fieldOf(command, "limit"); i >= 0 {
			command[i].Value = int32(1) // without a type that is the driver's
			o.arguments = append(o.arguments, command[i])
		}
	case "insert":
		o = insertion(t, command)
	case "createIndexes":
		own := fields(command, "createIndexes", "indexes", "writeConcern")
		o = operation{"runCommand", "database", bson.D{{Key: "commandName", Value: name}, {Key: "command", Value: own}}, bson.D{{Key: "ok", Value: int32(1)}}}
	default:
		t.Fatalf("the vectors have no operation for %s", name)
	}
	does = bson.D{{Key: "name", Value: o.name}, {Key: "object", Value: o.object}, {Key: "arguments", Value: f.command(o.arguments)}}
	switch code := at(reply, "code"); {
	case code != nil:
		does = append(does, bson.E{Key: "expectError", Value: bson.D{{Key: "errorCode", Value: code}}})
	case o.name != "insertOne": // what that returns is the driver's
		does = append(does, bson.E{Key: "expectResult", Value: f.document(o.result)})
	}
	return does, f.command(command).(bson.D)
}

func modification(t testing.TB, command, reply bson.D) operation {
	t.Helper()
	o := operation{name: "findOneAndDelete", object: concernOf(t, command), result: at(reply, "value")}
	for _, e := range command[1:] {
		switch e.Key {
		case "query":
			o.arguments = append(o.arguments, bson.E{Key: "filter", Value: e.Value})
		case "fields":
			o.arguments = append(o.arguments, bson.E{Key: "projection", Value: e.Value})
		case "update":
			o.name = "findOneAndUpdate"
			o.arguments = append(o.arguments, e)
		case "new":
			require.Equal(t, true, e.Value)
			o.arguments = append(o.arguments, bson.E{Key: "returnDocument", Value: "After"})
		case "upsert":
			o.arguments = append(o.arguments, e)
		case "remove", "writeConcern":
		default:
			t.Fatalf("the vectors have no %s", e.Key)
		}
	}
	order := []string{"filter", "update", "upsert", "projection", "returnDocument"} // as people read them
	slices.SortFunc(o.arguments, func(a, b bson.E) int { return slices.Index(order, a.Key) - slices.Index(order, b.Key) })
	return o
}

func insertion(t testing.TB, command bson.D) operation {
	t.Helper()
	require.Equal(t, wakeUps, command[0].Value)
	documents := at(command, "documents").(bson.A)
	require.Len(t, documents, 1)
	document := documents[0].(bson.D)
	without := slices.DeleteFunc(slices.Clone(document), func(e bson.E) bool { return e.Key == "_id" })
	document[fieldOf(document, "_id")].Value = bson.D{{Key: "$$type", Value: "objectId"}} // the driver makes it
	return operation{name: "insertOne", object: wakes, arguments: bson.D{{Key: "document", Value: without}}}
}

// concernOf returns the collection of a vector that has the write concern of a command.
func concernOf(t testing.TB, command bson.D) string {
	t.Helper()
	for id, concern := range concerns {
		if assert.ObjectsAreEqual(concern, at(command, "writeConcern")) {
			return id
		}
	}
	t.Fatalf("a write concern that the vectors do not have: %v", at(command, "writeConcern"))
	return ""
}

func fieldOf(d bson.D, name string) int {
	return slices.IndexFunc(d, func(e bson.E) bool { return e.Key == name })
}

func fields(d bson.D, names ...string) (some bson.D) {
	for _, e := range d {
		if slices.Contains(names, e.Key) {
			some = append(some, e)
		}
	}
	return some
}
