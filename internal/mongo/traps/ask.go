package traps

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
)

// Ask asks a deployment for all facts, with four or five commands to its primary. It fails
// only if the server does not say what it is. The caller sets NoRetries, which is a fact of the
// connection.
func Ask(ctx context.Context, client *mongo.Client) (Facts, error) {
	hello, old, err := Hello(ctx, client.Database("admin"))
	if err != nil {
		return Facts{}, err
	}
	f := Met(hello, old)
	f.Ask(ctx, client)
	if opts, err := run(ctx, client, "getCmdLineOpts"); err == nil {
		journal, told := opts.Lookup("parsed", "storage", "journal", "enabled").BooleanOK()
		f.NoJournal = told && !journal
	}
	return f, nil
}

func run(ctx context.Context, client *mongo.Client, command string) (bson.Raw, error) {
	return client.Database("admin").RunCommand(ctx, bson.D{{Key: command, Value: 1}}).Raw()
}

// Hello returns the server's hello, or its isMaster if the server is too old for hello.
func Hello(ctx context.Context, db *mongo.Database) (hello bson.Raw, old bool, err error) {
	hello, err = db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
	if mongoerr.ClassOf(err) == mongoerr.NoCommand {
		hello, err = db.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Raw()
		return hello, true, err
	}
	return hello, false, err
}

// Met returns the facts that a server's hello tells. old says that it was isMaster.
func Met(hello bson.Raw, old bool) Facts {
	kind, _ := hello.Lookup("msg").StringValueOK()
	_, member := hello.Lookup("setName").StringValueOK()
	f := Facts{NoHello: old, Router: kind == "isdbgrid", Hosts: texts(hello.Lookup("hosts"))}
	f.Standalone = !member && !f.Router
	f.NoSessions = !hello.Lookup("logicalSessionTimeoutMinutes").IsNumber()
	// This holds until the configuration tells more. A passive member may have no vote: then
	// too few are seen as missing, and no warning is false.
	f.Voting, f.Arbiters = len(f.Hosts)+len(texts(hello.Lookup("passives"))), len(texts(hello.Lookup("arbiters")))
	return f
}

// Ask asks for the facts that hello does not tell, with two commands, or three on a set. A fact
// that is not answered, perhaps because a right is missing, stays as it is. NoJournal is known
// from a write that asked for the journal.
func (f *Facts) Ask(ctx context.Context, client *mongo.Client) {
	if info, err := run(ctx, client, "buildInfo"); err == nil {
		f.build(info)
	}
	if status, err := run(ctx, client, "serverStatus"); err == nil {
		f.Engine, _ = status.Lookup("storageEngine", "name").StringValueOK()
		committed, told := status.Lookup("storageEngine", "supportsCommittedReads").BooleanOK()
		f.NoMajorityReads = told && !committed
	}
	if f.Member() {
		if config, err := run(ctx, client, "replSetGetConfig"); err == nil {
			f.config(config)
		}
	}
}

func (f *Facts) Member() bool { return !f.Standalone && !f.Router }

// valuesOf returns the elements of an array, none if it is no array.
func valuesOf(v bson.RawValue) []bson.RawValue {
	array, _ := v.ArrayOK()
	values, _ := array.Values()
	return values
}

func texts(v bson.RawValue) (all []string) {
	for _, v := range valuesOf(v) {
		if s, ok := v.StringValueOK(); ok {
			all = append(all, s)
		}
	}
	return all
}

func (f *Facts) build(info bson.Raw) {
	for i, v := range valuesOf(info.Lookup("versionArray")) {
		if n, _ := v.AsInt64OK(); i < len(f.Version) {
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
	values, _ := members.Values()
	f.Voting, f.Arbiters = 0, 0
	for _, v := range values {
		member, _ := v.DocumentOK()
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
