package traps

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

func names(f Facts) []string {
	all := []string{}
	for _, t := range Of(f) {
		all = append(all, t.Name)
	}
	return all
}

// good is a set of three MongoDB 8.2.
func good() Facts {
	return Facts{Version: Version{8, 2, 1}, Hosts: []string{"a:27017", "b:27017", "c:27017"}, Engine: "wiredTiger", Voting: 3}
}

func TestEachTrapIsSetByItsOwnFactAlone(t *testing.T) {
	t.Parallel()
	assert.Empty(t, names(good()))
	assert.Empty(t, names(Facts{}), "what is not known sets no trap")
	for _, c := range []struct {
		set  func(*Facts)
		want []string
	}{
		{func(f *Facts) { f.Version = Version{4, 2, 24} }, []string{"old-server"}},
		{func(f *Facts) { f.Version = Version{4, 4, 0} }, nil},
		{func(f *Facts) { f.Version, f.Standalone = Version{8, 0, 4}, true }, []string{"standalone-8.0", "standalone"}},
		{func(f *Facts) { f.Version, f.Standalone = Version{7, 0, 4}, true }, []string{"standalone"}},
		{func(f *Facts) { f.Version = Version{8, 0, 4} }, nil},
		{func(f *Facts) { f.Engine = "inMemory" }, []string{"memory-engine"}},
		{func(f *Facts) { f.NoJournal = true }, []string{"no-journal"}},
		{func(f *Facts) { f.Hosts = []string{"c.eu.docdb.amazonaws.com:27017"} }, []string{"documentdb"}},
		{func(f *Facts) { f.Hosts = []string{"c.mongo.cosmos.azure.com:10255"} }, []string{"cosmosdb"}},
		{func(f *Facts) { f.Product = "FerretDB" }, []string{"ferretdb"}},
		{func(f *Facts) { f.MajorityInMemory = true }, []string{"majority-in-memory"}},
		{func(f *Facts) { f.Voting, f.Arbiters = 2, 1 }, []string{"arbiter"}},
		{func(f *Facts) { f.Voting, f.Arbiters = 4, 1 }, nil},
		{func(f *Facts) { f.NoMajorityReads = true }, []string{"no-majority-reads"}},
		{func(f *Facts) { f.NoHello = true }, []string{"no-hello"}},
		{func(f *Facts) { f.NoRetries = true }, []string{"no-retries"}},
		{func(f *Facts) { f.NoSessions = true }, []string{"no-sessions"}},
	} {
		f := good()
		c.set(&f)
		assert.ElementsMatch(t, c.want, names(f), "%+v", f)
	}
}

func TestGraveTrapsComeFirstAndEachSaysWhatToDo(t *testing.T) {
	t.Parallel()
	var seen []string
	for i, l := range list {
		assert.False(t, i > 0 && l.Grave && !list[i-1].Grave, "%s comes after one that is not grave", l.Name)
		assert.NotContains(t, seen, l.Name, "a name is used twice")
		seen = append(seen, l.Name)
		for _, text := range []string{l.Name, l.Says, l.Why, l.Do} {
			assert.NotEmpty(t, text, "%+v", l.Trap)
		}
	}
	f := good()
	f.NoHello, f.NoRetries, f.Engine = true, true, "inMemory"
	assert.Equal(t, []string{"memory-engine", "no-hello", "no-retries"}, names(f))
}

func TestADeploymentTellsItsFacts(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, testserver.URI(t))
	client := testserver.Connect(t, proxy.URI())
	f, err := Ask(t.Context(), client)
	require.NoError(t, err)
	assert.NotEqual(t, Version{}, f.Version, "%+v", f)

	// A configuration that a server of one member does not have.
	proxy.On(faultproxy.Command("replSetGetConfig"), faultproxy.EditReply(func(bson.D) bson.D {
		member := func(more ...bson.E) bson.D { return append(bson.D{{Key: "votes", Value: 1}}, more...) }
		return bson.D{{Key: "ok", Value: 1}, {Key: "config", Value: bson.D{
			{Key: "writeConcernMajorityJournalDefault", Value: false},
			{Key: "members", Value: bson.A{member(), member(), member(bson.E{Key: "arbiterOnly", Value: true})}},
		}}}
	}))
	proxy.On(faultproxy.Command("buildInfo"), faultproxy.EditReply(func(bson.D) bson.D {
		return bson.D{{Key: "ok", Value: 1}, {Key: "versionArray", Value: bson.A{8, 0, 4, 0}}}
	}))
	proxy.On(faultproxy.Command("serverStatus"), faultproxy.EditReply(func(bson.D) bson.D {
		return bson.D{{Key: "ok", Value: 1}, {Key: "storageEngine", Value: bson.D{{Key: "name", Value: "inMemory"}, {Key: "supportsCommittedReads", Value: false}}}}
	}))
	journal := func(enabled bool) bson.D {
		return bson.D{{Key: "ok", Value: 1}, {Key: "parsed", Value: bson.D{{Key: "storage", Value: bson.D{{Key: "journal", Value: bson.D{{Key: "enabled", Value: enabled}}}}}}}}
	}
	kept := proxy.On(faultproxy.Command("getCmdLineOpts"), faultproxy.EditReply(func(bson.D) bson.D { return journal(true) }))
	f, err = Ask(t.Context(), client)
	require.NoError(t, err)
	assert.False(t, f.NoJournal)
	kept.Remove()
	proxy.On(faultproxy.Command("getCmdLineOpts"), faultproxy.EditReply(func(bson.D) bson.D { return journal(false) }))
	f, err = Ask(t.Context(), client)
	require.NoError(t, err)
	want := []string{"memory-engine", "no-journal", "majority-in-memory", "arbiter", "no-majority-reads"}
	if f.Standalone {
		want = []string{"standalone-8.0", "memory-engine", "no-journal", "standalone"}
	}
	assert.ElementsMatch(t, want, names(f), "%+v", f)
}

func TestWithoutRightsFactsStayUnknown(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, testserver.URI(t))
	client := testserver.Connect(t, proxy.URI())
	const unauthorized = 13
	proxy.On(faultproxy.Command("buildInfo", "serverStatus", "replSetGetConfig"), faultproxy.Fail(unauthorized))
	f, err := Ask(t.Context(), client)
	require.NoError(t, err)
	assert.Equal(t, Version{}, f.Version)
	assert.Empty(t, f.Engine)
}
