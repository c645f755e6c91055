package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A Capability names something that a server can show to a test. The names are used in MONGOLOCK_HAS
// and MONGOLOCK_REQUIRE.
type Capability string

// What a server can show.
const (
	// Atomic: of several concurrent conditional updates of one document exactly one matches, and the
	// server itself sees to it. (Behind the gate nothing is concurrent.)
	Atomic Capability = "atomic"
	// OperationTime: replies carry operationTime and $clusterTime.
	OperationTime Capability = "operationtime"
	// Retryable: writes may carry a txnNumber, and the server applies each once.
	Retryable Capability = "retryable"
	// InTurn: of one session's numbered writes one is executed after the other, so that none has an
	// effect once a later one was answered.
	InTurn Capability = "inturn"
	// TTL: a partial TTL index can be made, and the server removes expired documents.
	TTL Capability = "ttl"
	// Transactions: several documents in one transaction.
	Transactions Capability = "transactions"
	// StepDown: Server.StepDown works.
	StepDown Capability = "stepdown"
	// Process: the server is a process of its own, which Server.Kill ends with SIGKILL.
	Process Capability = "process"
	// Crash: after Kill and Restart every write that was acknowledged with j is there.
	Crash Capability = "crash"
	// Capped: capped collections, and tailable cursors that wait for data.
	Capped Capability = "capped"
	// Expressions: $expr in filters, and updates by a pipeline or with arrayFilters.
	Expressions Capability = "expressions"
	// Roles: a server can be started that enforces users' roles, see WithAuth.
	Roles Capability = "roles"
	// Set: a set of several members can be started, see Members.
	Set Capability = "set"
	// Clocks: the wall clock of each member can be set apart, see OwnClocks.
	Clocks Capability = "clocks"
	// Versions: every version of MongoDB can be started, see WithImage.
	Versions Capability = "versions"
	// APIStrict: apiStrict refuses a command outside the Stable API.
	APIStrict Capability = "apistrict"
	// TimeSeries: time-series collections can be made.
	TimeSeries Capability = "timeseries"
	// Router: the server is a mongos. It has no data of its own: the reply to a write comes
	// from a shard, and its hello shows its own clock.
	Router Capability = "router"
)

// The server is, or claims to be, MongoDB of this version or a later one. FerretDB has none of these,
// whatever it claims.
const (
	V44 Capability = "v44"
	V50 Capability = "v50"
	V60 Capability = "v60"
	V70 Capability = "v70"
	V80 Capability = "v80"
)

// versions has the version of each capability that stands for one.
var versions = map[Capability][2]int{V44: {4, 4}, V50: {5, 0}, V60: {6, 0}, V70: {7, 0}, V80: {8, 0}}

// capabilities tries on the server what can be tried, in a scratch database that it drops again, and
// adds what follows from the kind.
func capabilities(ctx context.Context, kind Kind, uri string, s Config) (has []Capability, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	has = ofKind(ctx, kind, s)

	p := probe{}
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(startTimeout).SetMonitor(&event.CommandMonitor{Started: p.started}))
	if err != nil {
		return nil, "", err
	}
	defer disconnect(client)
	p.admin = client.Database("admin")
	p.scratch = client.Database("devmongo_" + bson.NewObjectID().Hex())

	if p.hello, err = p.admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw(); err != nil {
		return nil, "", err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		p.scratch.Drop(ctx)
	}()
	for c, shows := range map[Capability]func(context.Context) bool{
		OperationTime: p.operationTime,
		Retryable:     p.retryable,
		TTL:           p.ttl,
		Transactions:  p.transactions,
		Capped:        p.capped,
		Expressions:   p.expressions,
		APIStrict:     p.apiStrict,
		TimeSeries:    p.timeSeries,
		Router:        p.router,
	} {
		if shows(ctx) {
			has = append(has, c)
		}
	}
	version, ferret := p.version(ctx)
	if !ferret {
		has = append(has, since(version)...)
		if kind == External {
			has = append(has, Atomic, InTurn)
		}
	}
	slices.Sort(has)
	return has, version, ctx.Err()
}

// ofKind returns the capabilities that follow from the kind, from what else the machine has, and from what
// was asked for.
func ofKind(ctx context.Context, kind Kind, s Config) []Capability {
	has := slices.Clone(byKind[kind])
	switch kind {
	case Mongod:
		if _, err := findFaketime(); err == nil {
			has = append(has, Clocks)
		}
	case Docker:
		has = append(has, dockerHas(ctx, s)...)
	}
	if s.Members > 1 || kind == Docker && s.Members > 0 {
		has = slices.DeleteFunc(has, func(c Capability) bool { return c == Roles })
	}
	if s.Shards > 0 {
		has = slices.DeleteFunc(has, func(c Capability) bool { return c == StepDown || c == Process || c == Crash || c == Roles })
	}
	return has
}

// byKind has the capabilities that cannot be tried. External has none of them: a server that is not
// ours is never killed, and we know no user of it.
var byKind = map[Kind][]Capability{
	Mongod:   {Atomic, InTurn, StepDown, Process, Crash, Roles, Set},
	Secantus: {Atomic, StepDown, Process, Crash, Roles},
	Docker:   {Atomic, InTurn, StepDown, Roles, Versions},
}

// A probe tries one capability in each method. An error means that the server lacks it.
type probe struct {
	admin, scratch *mongo.Database
	hello          bson.Raw
	sawTxnNumber   bool
}

func (p *probe) started(_ context.Context, e *event.CommandStartedEvent) {
	if _, err := e.Command.LookupErr("txnNumber"); err == nil {
		p.sawTxnNumber = true
	}
}

func (p *probe) operationTime(context.Context) bool {
	_, noTime := p.hello.LookupErr("operationTime")
	_, noCluster := p.hello.LookupErr("$clusterTime")
	return noTime == nil && noCluster == nil
}

func (p *probe) retryable(ctx context.Context) bool {
	p.sawTxnNumber = false
	_, err := p.scratch.Collection("retryable").InsertOne(ctx, bson.D{})
	return err == nil && p.sawTxnNumber // the driver sends none to a server without retryable writes
}

func (p *probe) ttl(ctx context.Context) bool {
	_, err := p.scratch.Collection("ttl").Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys: bson.D{{Key: "at", Value: 1}},
		Options: options.Index().SetExpireAfterSeconds(3600).
			SetPartialFilterExpression(bson.D{{Key: "ours", Value: 1}}),
	})
	return err == nil
}

func (p *probe) transactions(ctx context.Context) bool {
	if _, err := p.scratch.Collection("txn").InsertOne(ctx, bson.D{}); err != nil {
		return false
	}
	session, err := p.scratch.Client().StartSession()
	if err != nil {
		return false
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	if err := session.StartTransaction(); err != nil {
		return false
	}
	// A successful abort proves nothing: a server without transactions refuses the insert or, worse,
	// applies it.
	_, err = p.scratch.Collection("txn").InsertOne(mongo.NewSessionContext(ctx, session), bson.D{})
	if aborted := session.AbortTransaction(ctx); err != nil || aborted != nil {
		return false
	}
	n, err := p.scratch.Collection("txn").CountDocuments(ctx, bson.D{})
	return err == nil && n == 1
}

func (p *probe) capped(ctx context.Context) bool {
	if err := p.scratch.CreateCollection(ctx, "capped", options.CreateCollection().SetCapped(true).SetSizeInBytes(1<<20)); err != nil {
		return false
	}
	if _, err := p.scratch.Collection("capped").InsertOne(ctx, bson.D{}); err != nil {
		return false
	}
	cursor, err := p.scratch.Collection("capped").Find(ctx, bson.D{}, options.Find().SetCursorType(options.TailableAwait))
	if err != nil {
		return false
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	return cursor.ID() != 0
}

func (p *probe) expressions(ctx context.Context) bool {
	things := p.scratch.Collection("expressions")
	if _, err := things.InsertOne(ctx, bson.D{{Key: "list", Value: bson.A{1, 2}}}); err != nil {
		return false
	}
	filter := bson.D{{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$size", Value: "$list"}}, 2}}}}}
	byPipeline := mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "copy", Value: "$list"}}}}}
	one, err := things.UpdateOne(ctx, filter, byPipeline)
	if err != nil || one.ModifiedCount != 1 {
		return false
	}
	two, err := things.UpdateOne(ctx, bson.D{{Key: "copy", Value: 2}}, bson.D{{Key: "$set", Value: bson.D{{Key: "copy.$[e]", Value: 3}}}},
		options.UpdateOne().SetArrayFilters([]any{bson.D{{Key: "e", Value: 2}}}))
	return err == nil && two.ModifiedCount == 1
}

func (p *probe) apiStrict(ctx context.Context) bool {
	err := p.admin.RunCommand(ctx, bson.D{
		{Key: "serverStatus", Value: 1},
		{Key: "apiVersion", Value: "1"},
		{Key: "apiStrict", Value: true},
	}).Err()
	refused, ok := errors.AsType[mongo.CommandError](err)
	return ok && refused.HasErrorCode(apiStrictError)
}

const apiStrictError = 323

func (p *probe) timeSeries(ctx context.Context) bool {
	series := options.CreateCollection().SetTimeSeriesOptions(options.TimeSeries().SetTimeField("at"))
	if err := p.scratch.CreateCollection(ctx, "timeseries", series); err != nil {
		return false
	}
	// A server may accept the option and make an ordinary collection.
	specs, err := p.scratch.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: "timeseries"}})
	return err == nil && len(specs) == 1 && specs[0].Type == "timeseries"
}

func (p *probe) router(context.Context) bool {
	what, ok := p.hello.Lookup("msg").StringValueOK()
	return ok && what == "isdbgrid"
}

// version returns the version that the server reports, and whether it is FerretDB.
func (p *probe) version(ctx context.Context) (version string, ferret bool) {
	info, err := p.admin.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Raw()
	if err != nil {
		return "", false
	}
	version, _ = info.Lookup("version").StringValueOK()
	return version, strings.Contains(strings.ToLower(info.String()), "ferretdb")
}

// since returns the capabilities that stand for this version and earlier ones.
func since(version string) (has []Capability) {
	var is [2]int
	if n, err := fmt.Sscanf(version, "%d.%d", &is[0], &is[1]); err != nil || n != 2 {
		return nil
	}
	for c, v := range versions {
		if slices.Compare(is[:], v[:]) >= 0 {
			has = append(has, c)
		}
	}
	return has
}
