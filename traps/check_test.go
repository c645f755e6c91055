package traps

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

func answered(fields ...bson.E) bson.D { return append(bson.D{{Key: "ok", Value: 1}}, fields...) }

func refused(code int) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: "no"}}
}

const (
	unauthorized    = 13
	commandNotFound = 59
)

func TestADeploymentTellsItsTraps(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime", "!router") // which has sessions
	hello := func(more ...bson.E) bson.D {
		return answered(append(more, bson.E{Key: "isWritablePrimary", Value: true}, bson.E{Key: "logicalSessionTimeoutMinutes", Value: 30})...)
	}
	set := bson.E{Key: "setName", Value: "rs0"}
	hosts := func(of string, names ...any) bson.E { return bson.E{Key: of, Value: bson.A(names)} }
	config := func(journaled bool, members ...bool) bson.D {
		var all bson.A
		for _, arbiter := range members {
			all = append(all, bson.D{{Key: "votes", Value: 1}, {Key: "arbiterOnly", Value: arbiter}})
		}
		return answered(bson.E{Key: "config", Value: bson.D{{Key: "writeConcernMajorityJournalDefault", Value: journaled}, {Key: "members", Value: all}}})
	}
	version := func(major, minor, patch int) bson.D {
		return answered(bson.E{Key: "versionArray", Value: bson.A{major, minor, patch, 0}})
	}
	engine := func(name string, committed bool) bson.D {
		return answered(bson.E{Key: "storageEngine", Value: bson.D{{Key: "name", Value: name}, {Key: "supportsCommittedReads", Value: committed}}})
	}
	journal := func(kept bool) bson.D {
		return answered(bson.E{Key: "parsed", Value: bson.D{{Key: "storage", Value: bson.D{{Key: "journal", Value: bson.D{{Key: "enabled", Value: kept}}}}}}})
	}
	good := map[string]bson.D{
		"hello": hello(set), "buildInfo": version(8, 0, 4), "serverStatus": engine("wiredTiger", true),
		"replSetGetConfig": config(true, false, false, false), "getCmdLineOpts": journal(true),
	}
	for name, c := range map[string]struct {
		answers map[string]bson.D // in place of those of a good set
		options func(*options.ClientOptions)
		want    []string
	}{
		"a set of three":                        {},
		"standalone 8.0":                        {answers: map[string]bson.D{"hello": hello()}, want: []string{"standalone-8.0", "standalone"}},
		"standalone 7.0":                        {answers: map[string]bson.D{"hello": hello(), "buildInfo": version(7, 0, 4)}, want: []string{"standalone"}},
		"in memory":                             {answers: map[string]bson.D{"serverStatus": engine("inMemory", true)}, want: []string{"memory-engine"}},
		"no journal":                            {answers: map[string]bson.D{"getCmdLineOpts": journal(false)}, want: []string{"no-journal"}},
		"no majority reads":                     {answers: map[string]bson.D{"serverStatus": engine("wiredTiger", false)}, want: []string{"no-majority-reads"}},
		"a majority in memory, with an arbiter": {answers: map[string]bson.D{"replSetGetConfig": config(false, false, false, true)}, want: []string{"majority-in-memory", "arbiter"}},
		"an arbiter, seen without rights": {answers: map[string]bson.D{
			"hello":        hello(set, hosts("hosts", "a:1", "b:1"), hosts("arbiters", "c:1")),
			"serverStatus": refused(unauthorized), "replSetGetConfig": refused(unauthorized), "getCmdLineOpts": refused(unauthorized),
		}, want: []string{"arbiter"}},
		"no rights at all": {answers: map[string]bson.D{
			"buildInfo": refused(unauthorized), "serverStatus": refused(unauthorized), "replSetGetConfig": refused(unauthorized), "getCmdLineOpts": refused(unauthorized),
		}},
		"a service": {answers: map[string]bson.D{"hello": hello(set, hosts("hosts", "c.eu.docdb.amazonaws.com:27017"))}, want: []string{"documentdb"}},
		"FerretDB":  {answers: map[string]bson.D{"buildInfo": answered(bson.E{Key: "ferretdb", Value: bson.D{}})}, want: []string{"ferretdb"}},
		"no hello": {answers: map[string]bson.D{"hello": refused(commandNotFound), "isMaster": hello(set), "buildInfo": version(4, 4, 0)},
			want: []string{"no-hello"}},
		"no sessions": {answers: map[string]bson.D{"hello": answered(set, bson.E{Key: "isWritablePrimary", Value: true})}, want: []string{"no-sessions"}},
		"no retries":  {options: func(o *options.ClientOptions) { o.SetRetryWrites(false) }, want: []string{"no-retries"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var line testserver.Line
			line.Set(func(command string, with bson.Raw) testserver.Fate {
				if with.Lookup("lsid").IsZero() { // the driver's own
					return testserver.Fate{}
				}
				reply, ok := c.answers[command]
				if !ok {
					reply = good[command]
				}
				return testserver.Fate{Instead: reply}
			})
			if c.options == nil {
				c.options = func(*options.ClientOptions) {}
			}
			d, err := Check(t.Context(), testserver.Client(t, line.Through, c.options))
			require.NoError(t, err)
			assert.ElementsMatch(t, c.want, names(d), "%+v", d)
		})
	}
}

func TestADeploymentThatDoesNotAnswerIsAnError(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "operationtime")
	var line testserver.Line
	client := testserver.Client(t, line.Through)
	require.NoError(t, client.Ping(t.Context(), nil))
	line.Set(func(_ string, with bson.Raw) testserver.Fate {
		if !with.Lookup("lsid").IsZero() {
			return testserver.Fate{Instead: refused(unauthorized)}
		}
		return testserver.Fate{}
	})
	_, err := Check(t.Context(), client)
	assert.Error(t, err)
}
