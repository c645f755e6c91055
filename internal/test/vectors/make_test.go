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
		initial, test := play(t, of, one)
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
				{Key: "databaseName", Value: database}, {Key: "collectionName", Value: wake},
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
		under(wakes, wake, concerns[quick]),
		bson.D{{Key: "client", Value: bson.D{{Key: "id", Value: "reader"}}}},
		databaseOf("read", "reader"),
		collection(outcome, "read", locks),
	}
}

// play has a step done, and returns the state before it and the test.
func play(t testing.TB, of state, one step) (before bson.A, test bson.D) {
	t.Helper()
	s := newScene(t)
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
	if len(all) > 0 {
		f.before = all[0]
	} else {
		f.before = bson.D{}
	}
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

// operationOf turns a command into the operation by which a driver sends it, and into what is
// seen of it then. What the driver adds is left out.
func operationOf(t testing.TB, f *fixer, x exchange) (operation, event bson.D) {
	t.Helper()
	command := read(t, x.command)
	name := command[0].Key
	var object, does string
	var arguments bson.D
	for _, e := range command {
		if e.Key == "writeConcern" {
			for id, concern := range concerns {
				if assert.ObjectsAreEqual(concern, e.Value) {
					object = id
				}
			}
			require.NotEmpty(t, object, "a write concern that the vectors do not have: %v", e.Value)
		}
	}
	take := func(as ...string) {
		for i := 0; i < len(as); i += 2 {
			if v := at(command, as[i]); v != nil {
				arguments = append(arguments, bson.E{Key: as[i+1], Value: f.command(v)})
			}
		}
	}
	kept := []string{name, "writeConcern", "readConcern"}
	var result any
	reply := read(t, x.reply)
	switch name {
	case "findAndModify":
		kept = append(kept, "query", "update", "new", "upsert", "remove", "fields")
		take("query", "filter", "update", "update", "upsert", "upsert", "fields", "projection")
		does = "findOneAndDelete"
		if at(command, "update") != nil {
			does = "findOneAndUpdate"
			require.Equal(t, true, at(command, "new"))
			arguments = append(arguments, bson.E{Key: "returnDocument", Value: "After"})
		}
		result = f.document(at(reply, "value"))
	case "find":
		kept = append(kept, "filter", "limit")
		object, does = quick, "find"
		take("filter", "filter")
		arguments = append(arguments, bson.E{Key: "limit", Value: int32(1)})
		command = slices.DeleteFunc(command, func(e bson.E) bool { return e.Key == "limit" })
		command = append(command, arguments[1])
		result = f.document(at(reply, "cursor.firstBatch"))
	case "insert":
		kept = append(kept, "documents")
		object, does = wakes, "insertOne"
		documents := at(command, "documents").(bson.A)
		require.Len(t, documents, 1)
		document := documents[0].(bson.D)
		require.Equal(t, wake, command[0].Value)
		arguments = bson.D{{Key: "document", Value: slices.DeleteFunc(slices.Clone(document), func(e bson.E) bool { return e.Key == "_id" })}}
		for i := range document {
			if document[i].Key == "_id" {
				document[i].Value = bson.D{{Key: "$$type", Value: "objectId"}}
			}
		}
	case "createIndexes":
		kept = append(kept, "indexes")
		object, does = "database", "runCommand"
		arguments = bson.D{{Key: "commandName", Value: name}, {Key: "command", Value: seen(f, command, kept)}}
		result = bson.D{{Key: "ok", Value: int32(1)}}
	default:
		t.Fatalf("the vectors have no operation for %s", name)
	}
	operation = bson.D{{Key: "name", Value: does}, {Key: "object", Value: object}, {Key: "arguments", Value: arguments}}
	switch code := at(reply, "code"); {
	case code != nil:
		operation = append(operation, bson.E{Key: "expectError", Value: bson.D{{Key: "errorCode", Value: code}}})
	case does != "insertOne": // what that returns is the driver's
		operation = append(operation, bson.E{Key: "expectResult", Value: result})
	}
	return operation, seen(f, command, kept)
}

func seen(f *fixer, command bson.D, kept []string) (event bson.D) {
	for _, e := range command {
		if slices.Contains(kept, e.Key) {
			event = append(event, bson.E{Key: e.Key, Value: f.command(e.Value)})
		}
	}
	return event
}
