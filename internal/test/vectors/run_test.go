package vectors

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
)

func TestTheVectorsHoldInMemory(t *testing.T) { runAll(t, inMemory(t)) }

func TestTheVectorsHoldOnAServer(t *testing.T) {
	uri := testserver.URI(t, "atomic", "capped")
	runAll(t, func() *options.ClientOptions { return testserver.Dialling(uri) })
}

// A runner that finds nothing wrong proves nothing: each vector has to fail when one of its commands
// is another one, as it would be if the library, or the server, were another one.
func TestARunnerObjectsToAnyChangeOfAVector(t *testing.T) {
	for name, change := range map[string]struct{ file, from, to string }{
		"a filter without its condition":     {"over.json", `"holders.FIRST.beat": {"$numberLong": "1900000000000000001"},`, ""},
		"an update that does more":           {"held.json", `{"rev": {"$numberLong": "1"}}`, `{"rev": {"$numberLong": "2"}}`},
		"an upsert that does not insert":     {"free.json", `"upsert": true`, `"upsert": false`},
		"another write concern":              {"held.json", `"w": "majority", "journal": true`, `"w": "majority"`},
		"another reply":                      {"broken.json", `"expectResult": null`, `"expectResult": {"_id": "nightly-report"}`},
		"a refusal that is none":             {"shared.json", `"errorCode": 11000`, `"errorCode": 112`},
		"an error where a result is due":     {"stale.json", `"expectError": {"errorCode": 11000}`, `"expectResult": null`},
		"a date that the server did not set": {"awaited.json", `"at": {"$$type": "date"}`, `"at": {"$date": "2030-01-01T00:00:00Z"}`},
		"a document that is still there":     {"offered.json", `"expectResult": []`, `"expectResult": [{}]`},
	} {
		t.Run(name, func(t *testing.T) {
			vector, err := os.ReadFile(filepath.Join(folder, change.file))
			require.NoError(t, err)
			changed := strings.ReplaceAll(string(vector), change.from, change.to)
			require.NotEqual(t, string(vector), changed, "%s has nothing like that", change.file)
			var all []error
			for _, err := range run(t.Context(), inMemory(t), []byte(changed)) {
				all = append(all, err)
			}
			assert.Error(t, errors.Join(all...))
		})
	}
}

func inMemory(t *testing.T) func() *options.ClientOptions {
	server := memmongo.New()
	return func() *options.ClientOptions {
		link := server.Link()
		t.Cleanup(link.Close)
		return options.Client().ApplyURI("mongodb://memory:27017/?directConnection=true").SetDialer(link)
	}
}

func runAll(t *testing.T, connect func() *options.ClientOptions) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		vector, err := os.ReadFile(file)
		require.NoError(t, err)
		for says, err := range run(t.Context(), connect, vector) {
			assert.NoError(t, err, "%s: %s", filepath.Base(file), says)
		}
	}
}

// A vector is a file. Its fields are named in lower camel case there.
type vector struct {
	CreateEntities []bson.D
	InitialData    []initialData
	Tests          []test
}

type initialData struct {
	DatabaseName, CollectionName string
	CreateOptions                struct {
		Capped bool
		Size   int64
	}
	Documents []bson.D
}

// run runs the tests of a vector, and returns what was wrong with each.
func run(ctx context.Context, connect func() *options.ClientOptions, file []byte) map[string]error {
	var v vector
	if err := unmarshal(file, &v); err != nil {
		return map[string]error{"the file": err}
	}
	found := map[string]error{}
	for _, one := range v.Tests {
		found[one.Description] = errors.Join(prepare(ctx, connect, v.InitialData), perform(ctx, connect, v.CreateEntities, one))
	}
	return found
}

// prepare makes the collections as a test finds them.
func prepare(ctx context.Context, connect func() *options.ClientOptions, all []initialData) error {
	client, err := mongo.Connect(connect().SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return err
	}
	defer disconnect(ctx, client)
	for _, d := range all {
		coll, how := client.Database(d.DatabaseName).Collection(d.CollectionName), options.CreateCollection()
		if d.CreateOptions.Capped {
			how.SetCapped(true).SetSizeInBytes(d.CreateOptions.Size)
		}
		if err := errors.Join(coll.Drop(ctx), coll.Database().CreateCollection(ctx, coll.Name(), how)); err != nil {
			return err
		}
		if len(d.Documents) == 0 {
			continue
		}
		if _, err := coll.InsertMany(ctx, d.Documents); err != nil {
			return err
		}
	}
	return nil
}

func perform(ctx context.Context, connect func() *options.ClientOptions, entities []bson.D, one test) error {
	c, err := newEntityMap(connect, entities)
	defer c.close(ctx)
	if err != nil {
		return err
	}
	return one.run(ctx, c)
}

// A test is one of a vector.
type test struct {
	Description string
	Operations  []struct {
		Name, Object string
		Arguments    bson.D
		ExpectResult any
		ExpectError  *struct{ ErrorCode int }
	}
	ExpectEvents []struct {
		Client string
		Events []struct{ CommandStartedEvent struct{ Command bson.D } }
	}
}

func (x test) run(ctx context.Context, e *entityMap) error {
	for i, o := range x.Operations {
		got, err := e.do(ctx, o.Name, o.Object, o.Arguments)
		switch {
		case o.ExpectError != nil:
			var refused mongo.ServerError
			if !errors.As(err, &refused) || !refused.HasErrorCode(o.ExpectError.ErrorCode) {
				return fmt.Errorf("operation %d: code %d is expected, not %v (%w)", i, o.ExpectError.ErrorCode, got, err)
			}
			continue
		case err != nil:
			return fmt.Errorf("operation %d, %s: %w", i, o.Name, err)
		case o.Name == "insertOne": // what it returns is the driver's
			continue
		}
		if err := matches(o.ExpectResult, got, o.Name == "runCommand"); err != nil {
			return fmt.Errorf("operation %d, %s: %w", i, o.Name, err)
		}
	}
	for _, of := range x.ExpectEvents {
		sent := e.sent[of.Client].take()
		if len(sent) != len(of.Events) {
			return fmt.Errorf("%d commands were sent, and %d are expected", len(sent), len(of.Events))
		}
		for i, command := range sent {
			if err := matches(of.Events[i].CommandStartedEvent.Command, command, true); err != nil {
				return fmt.Errorf("command %d: %w", i, err)
			}
		}
	}
	return nil
}

// unmarshal decodes Extended JSON into a struct whose fields have names in lower camel case.
func unmarshal(text []byte, into any) error {
	var d bson.D
	if err := bson.UnmarshalExtJSON(text, false, &d); err != nil {
		return err
	}
	raw, err := bson.Marshal(d)
	if err != nil {
		return err
	}
	decoder := bson.NewDecoder(bson.NewDocumentReader(strings.NewReader(string(raw))))
	decoder.UseJSONStructTags()
	return decoder.Decode(into)
}

// An entityMap has the drivers of a test, and what they have.
type entityMap struct {
	clients     map[string]*mongo.Client
	databases   map[string]*mongo.Database
	collections map[string]*mongo.Collection
	sent        map[string]*tap
}

// A tap has the commands that a client has sent.
type tap struct {
	mu   sync.Mutex // protects sent
	sent []bson.D
}

func (p *tap) take() []bson.D {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

func (p *tap) started(_ context.Context, e *event.CommandStartedEvent) {
	var command bson.D
	if err := bson.Unmarshal(e.Command, &command); err != nil {
		panic(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, command)
}

func disconnect(ctx context.Context, c *mongo.Client) { _ = c.Disconnect(context.WithoutCancel(ctx)) }

func (e *entityMap) close(ctx context.Context) {
	for _, c := range e.clients {
		disconnect(ctx, c)
	}
}

func newEntityMap(connect func() *options.ClientOptions, all []bson.D) (*entityMap, error) {
	e := &entityMap{map[string]*mongo.Client{}, map[string]*mongo.Database{}, map[string]*mongo.Collection{}, map[string]*tap{}}
	for _, one := range all {
		of := one[0].Value.(bson.D)
		id, _ := at(of, "id").(string)
		text := func(field string) string { s, _ := at(of, field).(string); return s }
		switch kind := one[0].Key; kind {
		case "client":
			o := connect()
			if at(of, "observeEvents") != nil {
				e.sent[id] = new(tap)
				o.SetMonitor(&event.CommandMonitor{Started: e.sent[id].started})
			}
			client, err := mongo.Connect(o)
			if err != nil {
				return e, err
			}
			e.clients[id] = client
		case "database":
			e.databases[id] = e.clients[text("client")].Database(text("databaseName"))
		case "collection":
			o := options.Collection()
			if level, ok := at(of, "collectionOptions.readConcern.level").(string); ok {
				o.SetReadConcern(&readconcern.ReadConcern{Level: level})
			}
			if c := at(of, "collectionOptions.writeConcern"); c != nil {
				concern := &writeconcern.WriteConcern{W: at(c.(bson.D), "w")}
				if w, ok := concern.W.(int32); ok {
					concern.W = int(w)
				}
				if j, ok := at(c.(bson.D), "journal").(bool); ok {
					concern.Journal = &j
				}
				o.SetWriteConcern(concern)
			}
			e.collections[id] = e.databases[text("database")].Collection(text("collectionName"), o)
		default:
			return e, fmt.Errorf("this runner has no entity %s", kind)
		}
	}
	return e, nil
}

// do runs one operation. Its result is a document, a list of documents, or nil.
func (e *entityMap) do(ctx context.Context, name, object string, arguments bson.D) (any, error) {
	coll := e.collections[object]
	projection := at(arguments, "projection")
	switch name {
	case "findOneAndUpdate":
		o := options.FindOneAndUpdate().SetUpsert(at(arguments, "upsert") == true)
		if at(arguments, "returnDocument") == "After" {
			o.SetReturnDocument(options.After)
		}
		if projection != nil {
			o.SetProjection(projection)
		}
		return one(coll.FindOneAndUpdate(ctx, at(arguments, "filter"), at(arguments, "update"), o))
	case "findOneAndDelete":
		return one(coll.FindOneAndDelete(ctx, at(arguments, "filter")))
	case "find":
		o := options.Find()
		if n, ok := at(arguments, "limit").(int32); ok {
			o.SetLimit(int64(n))
		}
		cursor, err := coll.Find(ctx, at(arguments, "filter"), o)
		if err != nil {
			return nil, err
		}
		var all []bson.D
		if err := cursor.All(ctx, &all); err != nil {
			return nil, err
		}
		list := make(bson.A, len(all))
		for i := range all {
			list[i] = all[i]
		}
		return list, nil
	case "insertOne":
		_, err := coll.InsertOne(ctx, at(arguments, "document"))
		return nil, err
	case "runCommand":
		return one(e.databases[object].RunCommand(ctx, at(arguments, "command")))
	}
	return nil, fmt.Errorf("this runner has no operation %s", name)
}

func one(r *mongo.SingleResult) (any, error) {
	var d bson.D
	err := r.Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	return d, err
}

// matches compares a value with what is expected. Only a document that is more than asked for at
// its root may have other fields. (The format allows that for replies too. What these vectors say
// of a reply is all of it.)
func matches(want, got any, more bool) error {
	switch want := want.(type) {
	case bson.D:
		if len(want) == 1 && want[0].Key == "$$type" {
			return hasType(want[0].Value, got)
		}
		d, ok := got.(bson.D)
		if !ok {
			return fmt.Errorf("%v is expected, not %v", want, got)
		}
		for _, e := range want {
			i := slices.IndexFunc(d, func(f bson.E) bool { return f.Key == e.Key })
			if i < 0 {
				return fmt.Errorf("no %s in %v", e.Key, d)
			}
			if err := matches(e.Value, d[i].Value, false); err != nil {
				return fmt.Errorf("%s: %w", e.Key, err)
			}
		}
		if len(d) > len(want) && !more {
			return fmt.Errorf("more than %v: %v", want, d)
		}
		return nil
	case bson.A:
		list, ok := got.(bson.A)
		if !ok || len(list) != len(want) {
			return fmt.Errorf("%v is expected, not %v", want, got)
		}
		for i := range want {
			if err := matches(want[i], list[i], false); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
		return nil
	}
	if n, ok := number(want); ok {
		if m, ok := number(got); ok && n == m {
			return nil
		}
	} else if want == got {
		return nil
	}
	return fmt.Errorf("%v is expected, not %v", want, got)
}

// number returns a number of any type. Those of the vectors fit an int64.
func number(v any) (int64, bool) {
	switch v := v.(type) {
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case float64:
		return int64(v), v == float64(int64(v))
	}
	return 0, false
}

func hasType(want, got any) error {
	is := ""
	switch got.(type) {
	case bson.DateTime:
		is = "date"
	case bson.ObjectID:
		is = "objectId"
	}
	if is != want {
		return fmt.Errorf("a %v is expected, not %v", want, got)
	}
	return nil
}
