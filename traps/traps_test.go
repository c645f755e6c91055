package traps

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func names(d Deployment) []string {
	all := []string{}
	for _, t := range d.Traps() {
		all = append(all, t.Name)
	}
	return all
}

// good is a set of three MongoDB 8.2.
func good() Deployment {
	return Deployment{Version: Version{8, 2, 1}, Hosts: []string{"a:27017", "b:27017", "c:27017"}, Engine: "wiredTiger", Voting: 3}
}

func TestEachTrapIsSetByItsOwnFactAlone(t *testing.T) {
	t.Parallel()
	assert.Empty(t, names(good()))
	assert.Empty(t, names(Deployment{}), "what is not known sets no trap")
	for _, c := range []struct {
		set  func(*Deployment)
		want []string
	}{
		{func(d *Deployment) { d.Version = Version{4, 2, 24} }, []string{"old-server"}},
		{func(d *Deployment) { d.Version = Version{4, 4, 0} }, nil},
		{func(d *Deployment) { d.Version, d.Standalone = Version{8, 0, 4}, true }, []string{"standalone-8.0", "standalone"}},
		{func(d *Deployment) { d.Version, d.Standalone = Version{7, 0, 4}, true }, []string{"standalone"}},
		{func(d *Deployment) { d.Version = Version{8, 0, 4} }, nil},
		{func(d *Deployment) { d.Engine = "inMemory" }, []string{"memory-engine"}},
		{func(d *Deployment) { d.NoJournal = true }, []string{"no-journal"}},
		{func(d *Deployment) { d.Hosts = []string{"c.eu.docdb.amazonaws.com:27017"} }, []string{"documentdb"}},
		{func(d *Deployment) { d.Hosts = []string{"c.mongo.cosmos.azure.com:10255"} }, []string{"cosmosdb"}},
		{func(d *Deployment) { d.Product = "FerretDB" }, []string{"ferretdb"}},
		{func(d *Deployment) { d.MajorityInMemory = true }, []string{"majority-in-memory"}},
		{func(d *Deployment) { d.Voting, d.Arbiters = 2, 1 }, []string{"arbiter"}},
		{func(d *Deployment) { d.Voting, d.Arbiters = 4, 1 }, nil},
		{func(d *Deployment) { d.NoMajorityReads = true }, []string{"no-majority-reads"}},
		{func(d *Deployment) { d.NoHello = true }, []string{"no-hello"}},
		{func(d *Deployment) { d.NoRetries = true }, []string{"no-retries"}},
		{func(d *Deployment) { d.NoSessions = true }, []string{"no-sessions"}},
	} {
		d := good()
		c.set(&d)
		assert.ElementsMatch(t, c.want, names(d), "%+v", d)
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
	d := good()
	d.NoHello, d.NoRetries, d.Engine = true, true, "inMemory"
	assert.Equal(t, []string{"memory-engine", "no-hello", "no-retries"}, names(d))
}
