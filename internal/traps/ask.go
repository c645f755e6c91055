package traps

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongoerr"
)

// Ask asks a deployment for the facts, with four commands to its primary. It fails only if
// the server does not say what it is; what a right is missing for stays unknown. NoRetries
// is the connection's: the caller sets it.
func Ask(ctx context.Context, client *mongo.Client) (Facts, error) {
	var f Facts
	admin := client.Database("admin")
	run := func(command bson.D) (bson.Raw, error) {
		return admin.RunCommand(ctx, command).Raw()
	}
	hello, err := run(bson.D{{Key: "hello", Value: 1}})
	if mongoerr.ClassOf(err) == mongoerr.NoCommand {
		f.NoHello = true
		hello, err = run(bson.D{{Key: "isMaster", Value: 1}})
	}
	if err != nil {
		return f, err
	}
	f.hello(hello)
	if info, err := run(bson.D{{Key: "buildInfo", Value: 1}}); err == nil {
		f.build(info)
	}
	if status, err := run(bson.D{{Key: "serverStatus", Value: 1}}); err == nil {
		f.Engine, _ = status.Lookup("storageEngine", "name").StringValueOK()
	}
	if !f.Standalone && !f.Router {
		if config, err := run(bson.D{{Key: "replSetGetConfig", Value: 1}}); err == nil {
			f.config(config)
		}
	}
	return f, nil
}

func (f *Facts) hello(hello bson.Raw) {
	kind, _ := hello.Lookup("msg").StringValueOK()
	f.Router = kind == "isdbgrid"
	_, member := hello.Lookup("setName").StringValueOK()
	f.Standalone = !member && !f.Router
	f.NoSessions = !hello.Lookup("logicalSessionTimeoutMinutes").IsNumber()
	f.Hosts = texts(hello.Lookup("hosts"))
	arbiters := texts(hello.Lookup("arbiters"))
	f.Voting, f.Arbiters = len(f.Hosts), len(arbiters) // until the configuration tells more
}

func texts(v bson.RawValue) []string {
	array, ok := v.ArrayOK()
	if !ok {
		return nil
	}
	values, err := array.Values()
	if err != nil {
		return nil
	}
	var all []string
	for _, v := range values {
		if s, ok := v.StringValueOK(); ok {
			all = append(all, s)
		}
	}
	return all
}

func (f *Facts) build(info bson.Raw) {
	if array, ok := info.Lookup("versionArray").ArrayOK(); ok {
		values, err := array.Values()
		for i := 0; err == nil && i < min(len(values), len(f.Version)); i++ {
			n, _ := values[i].AsInt64OK()
			f.Version[i] = int(n)
		}
	}
	for field, product := range map[string]string{"ferretdb": "FerretDB", "ferretdbVersion": "FerretDB", "secantusVersion": "SecantusDB"} {
		if !info.Lookup(field).IsZero() {
			f.Product = product
		}
	}
}

func (f *Facts) config(reply bson.Raw) {
	if is, ok := reply.Lookup("config", "writeConcernMajorityJournalDefault").BooleanOK(); ok {
		f.MajorityInMemory = !is
	}
	members, ok := reply.Lookup("config", "members").ArrayOK()
	if !ok {
		return
	}
	values, err := members.Values()
	if err != nil {
		return
	}
	f.Voting, f.Arbiters = 0, 0
	for _, v := range values {
		member, ok := v.DocumentOK()
		if !ok {
			continue
		}
		votes, told := member.Lookup("votes").AsInt64OK()
		arbiter, _ := member.Lookup("arbiterOnly").BooleanOK()
		switch {
		case arbiter:
			f.Arbiters++
		case !told || votes > 0:
			f.Voting++
		}
	}
}
