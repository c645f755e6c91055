package chaos

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

var (
	apart = flag.Duration("chaos.apart", 2*time.Second, "how far the second member's clock is ahead; the third's is twice as far")
	alone = flag.Bool("chaos.alone", false, "where there is no set, break one server as if it were one of one member")
	logs  = flag.String("chaos.logs", "", "an empty directory in which the workers' histories stay; the default is one that is removed")
	links = flag.Bool("chaos.links", true, "cut members off from each other, by proxies between them")
)

const setTTL = 4 * time.Second // longer than an election

// ordersOnASet are those for a set of three. Where no server can show one the test skips by
// name, or runs on a set of one.
func ordersOnASet(t *testing.T) orders {
	o := defaultOrders()
	o.TTL, o.Discover = setTTL, true
	if *alone && !testserver.Has("set") {
		testserver.Need(t, "process", "stepdown")
		return o
	}
	testserver.Need(t, "set")
	o.Server = "members=3"
	if *links {
		o.Server += "&links=1"
	}
	if testserver.Has("clocks") {
		o.Server += "&clocks=1"
	}
	return o
}

func TestNoChaosOnASetBreaksAPromise(t *testing.T) {
	o := ordersOnASet(t)
	var after, before counters
	h, faults := run(t, o, *chaosFor, func(c *cluster, ctx context.Context) {
		c.setClocksApart()
		before = c.read()
		c.untilTried(ctx, c.nemesisOfASet)
		after = c.read()
	})
	grants := grantsByWay(h.Events)
	total := 0
	for _, n := range grants {
		total += n
	}
	t.Logf("%v: %d grants, %v, %d events", *chaosFor, total, grants, len(h.Events))
	for _, fault := range slices.Sorted(maps.Keys(faults)) {
		t.Logf("%4d × %s", faults[fault], fault)
	}
	t.Log(after.since(before))
	if found := h.Check(); len(found) > 0 {
		for _, v := range found {
			t.Error(v)
		}
		h.Keep(t, "chaos-set", "chaos-set", found)
	}
	assert.GreaterOrEqual(t, total, int(*chaosFor/setTTL), "too few grants: nothing was tried")
	if *chaosFor < time.Minute {
		return
	}
	assert.Empty(t, untried(h.Events))
	assert.True(t, slices.ContainsFunc(h.Events, func(e history.Event) bool { return e.Kind == history.Register }), "no register was read")
}

// setClocksApart sets clocks ahead. A clock that is behind makes a mongod 8.0 slow (devmongo, type clock).
func (c *cluster) setClocksApart() {
	if !slices.Contains(c.server.Has, "clocks") {
		c.t.Log("all clocks are the machine's: the server does not show `clocks`")
		return
	}
	for i, ahead := range []time.Duration{0, *apart, 2 * *apart} {
		if i < len(c.server.Members) {
			c.server.Do(fmt.Sprintf("members/%d/clock?ahead=%v", i, ahead))
		}
	}
}

// nemesisOfASet breaks the members of a set, and the workers as nemesis does.
func (c *cluster) nemesisOfASet(ctx context.Context) {
	for pause(ctx, time.Second); ctx.Err() == nil; pause(ctx, 200*time.Millisecond+rand.N(2*time.Second)) {
		if rand.N(2) == 0 {
			c.disturb(ctx, c.members[rand.N(len(c.members))])
			continue
		}
		if p, ok := c.primary(ctx); ok {
			c.breakMember(ctx, p)
		}
	}
	for i := range c.server.Members {
		_ = c.server.Try(fmt.Sprintf("members/%d/continue", i))
	}
}

func (c *cluster) breakMember(ctx context.Context, primary int) {
	var others []int
	for i := range c.server.Members {
		if i != primary {
			others = append(others, i)
		}
	}
	anyone := rand.N(len(c.server.Members))
	election := 4 * time.Second // and some time for the one elected
	switch rand.N(11) {
	case 0, 1:
		c.during(ctx, "primary killed with -9", "kill", "restart", rand.N(election), primary)
	case 2:
		c.during(ctx, "any member killed with -9", "kill", "restart", rand.N(election/2), anyone)
	case 3, 4:
		c.during(ctx, "primary stopped and continued", "suspend", "continue", rand.N(3*election/2), primary)
	case 5:
		c.during(ctx, "all others stopped and continued", "suspend", "continue", rand.N(election), others...)
	case 6, 7:
		if *links && len(others) > 0 {
			c.during(ctx, "primary cut off from the others", "cutoff", "rejoin", rand.N(2*election), primary)
		}
	case 8:
		if err := c.server.Try("stepdown?seconds=3"); err != nil { // it may be none any more
			c.t.Log(err)
		} else {
			c.count("primary stepped down")
		}
	case 9:
		if len(others) > 0 && c.server.Try(fmt.Sprintf("members/%d/primary", others[rand.N(len(others))])) == nil {
			c.count("another made primary")
		}
	case 10: // a clock that steps while its member reigns is not one that the library can stand
		if slices.Contains(c.server.Has, "clocks") && len(others) > 0 {
			other := others[rand.N(len(others))]
			c.count("another member restarted with another clock")
			c.server.Do(fmt.Sprintf("members/%d/kill", other))
			c.server.Do(fmt.Sprintf("members/%d/clock?ahead=%v", other, rand.N(2**apart+1)))
			c.server.Do(fmt.Sprintf("members/%d/restart", other))
		}
	}
}

// during does something to members, and undoes it after a while.
func (c *cluster) during(ctx context.Context, name, begin, end string, d time.Duration, members ...int) {
	if len(members) == 0 {
		return
	}
	c.count(name)
	for _, i := range members {
		c.server.Do(fmt.Sprintf("members/%d/%s", i, begin))
	}
	pause(ctx, d)
	for _, i := range members {
		c.server.Do(fmt.Sprintf("members/%d/%s", i, end))
	}
}

// primary returns the index of the member that the others follow.
func (c *cluster) primary(ctx context.Context) (int, bool) {
	if len(c.server.Members) == 1 {
		return 0, true
	}
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var hello struct{ Primary string }
	err := c.direct.Database("admin").RunCommand(within, bson.D{{Key: "isMaster", Value: 1}}).Decode(&hello)
	i := slices.Index(c.server.Members, hello.Primary)
	return i, err == nil && i >= 0
}

// counters are what the members themselves count.
type counters struct {
	term      int64   // rises with each election
	rollbacks []int64 // of each member: rises with each of its rollbacks
	err       error   // why they are not known
}

func (c *cluster) read() (n counters) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), 30*time.Second)
	defer cancel()
	for _, host := range c.server.Members {
		admin := testserver.Connect(c.t, "mongodb://"+host+"/", func(o *options.ClientOptions) { o.SetDirect(true) }).Database("admin")
		var status struct{ Term int64 }
		var rollback struct{ RBID int64 }
		n.err = admin.RunCommand(ctx, bson.D{{Key: "replSetGetStatus", Value: 1}}).Decode(&status)
		if n.err == nil {
			n.err = admin.RunCommand(ctx, bson.D{{Key: "replSetGetRBID", Value: 1}}).Decode(&rollback)
		}
		if n.err != nil {
			return n
		}
		n.term = max(n.term, status.Term)
		n.rollbacks = append(n.rollbacks, rollback.RBID)
	}
	return n
}

func (n counters) since(before counters) string {
	if n.err != nil || before.err != nil {
		return fmt.Sprintf("elections and rollbacks: not known, %v", n.err)
	}
	rollbacks := int64(0)
	for i, now := range n.rollbacks {
		rollbacks += now - before.rollbacks[i]
	}
	return fmt.Sprintf("elections: %d, rollbacks: %d", n.term-before.term, rollbacks)
}
