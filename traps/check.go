package traps

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/mongo/server"
)

// Check asks the primary, with four or five commands, what the deployment is. What it does not tell,
// because a right is missing, stays unknown: the storage engine, the configuration of the set and the
// journal take the role clusterMonitor. Check fails only if the server does not answer hello.
func Check(ctx context.Context, client *mongo.Client) (Deployment, error) {
	ctx = server.Bare(ctx)
	hello, old, err := server.SayHello(ctx, client.Database("admin"))
	if err != nil {
		return Deployment{}, err
	}
	d := said(hello)
	d.NoHello, d.NoRetries = old, !server.Retries(client)
	if info, err := run(ctx, client, "buildInfo"); err == nil {
		d.build(info)
	}
	if status, err := run(ctx, client, "serverStatus"); err == nil {
		d.Engine, _ = status.Lookup("storageEngine", "name").StringValueOK()
		committed, told := status.Lookup("storageEngine", "supportsCommittedReads").BooleanOK()
		d.NoMajorityReads = told && !committed
	}
	if d.member() {
		if config, err := run(ctx, client, "replSetGetConfig"); err == nil {
			d.config(config)
		}
	}
	if opts, err := run(ctx, client, "getCmdLineOpts"); err == nil {
		journal, told := opts.Lookup("parsed", "storage", "journal", "enabled").BooleanOK()
		d.NoJournal = told && !journal
	}
	return d, nil
}

func run(ctx context.Context, client *mongo.Client, command string) (bson.Raw, error) {
	return client.Database("admin").RunCommand(ctx, bson.D{{Key: command, Value: 1}}).Raw()
}

// said returns what a server's hello tells.
func said(hello bson.Raw) Deployment {
	kind := server.KindOf(hello)
	hosts := texts(hello.Lookup("hosts"))
	return Deployment{
		Router: kind.Router, Standalone: !kind.Set, NoSessions: !kind.Sessions, Hosts: hosts,
		// This holds until the configuration tells more. A passive member may have no vote: then
		// too few are seen as missing, and no warning is false.
		Voting: len(hosts) + len(texts(hello.Lookup("passives"))), Arbiters: len(texts(hello.Lookup("arbiters"))),
	}
}

func (d *Deployment) member() bool { return !d.Standalone && !d.Router }

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

func (d *Deployment) build(info bson.Raw) {
	for i, v := range valuesOf(info.Lookup("versionArray")) {
		if n, _ := v.AsInt64OK(); i < len(d.Version) {
			d.Version[i] = int(n)
		}
	}
	for field, product := range map[string]string{"ferretdb": "FerretDB", "ferretdbVersion": "FerretDB", "secantusVersion": "SecantusDB"} {
		if !info.Lookup(field).IsZero() {
			d.Product = product
		}
	}
}

func (d *Deployment) config(reply bson.Raw) {
	if is, ok := reply.Lookup("config", "writeConcernMajorityJournalDefault").BooleanOK(); ok {
		d.MajorityInMemory = !is
	}
	members := valuesOf(reply.Lookup("config", "members"))
	if members == nil {
		return
	}
	d.Voting, d.Arbiters = 0, 0
	for _, v := range members {
		member, _ := v.DocumentOK()
		votes, told := member.Lookup("votes").AsInt64OK()
		arbiter, _ := member.Lookup("arbiterOnly").BooleanOK()
		switch {
		case arbiter:
			d.Arbiters++
		case !told || votes > 0:
			d.Voting++
		}
	}
}
