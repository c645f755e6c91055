package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// A cluster is a server and worker processes, each behind a proxy of its own.
type cluster struct {
	t       *testing.T
	server  *testserver.Server
	direct  *mongo.Client // past the proxies
	orders  orders
	dir     string // of the workers' logs
	members []*member
	started int
	faults  map[string]int // how often each was injected
}

// A member is a worker process, and the proxies between it and each server.
type member struct {
	proxies []*faultproxy.Proxy
	process *testchild.Process
	owner   string // of its leases
	python  bool   // the program that it runs is in Python
}

// on injects a fault on all the ways that a member has to the server.
func (m *member) on(match faultproxy.Matcher, actions ...faultproxy.Action) (all rules) {
	for _, p := range m.proxies {
		all = append(all, p.On(match, actions...))
	}
	return all
}

func (m *member) each(do func(*faultproxy.Proxy)) {
	for _, p := range m.proxies {
		do(p)
	}
}

type rules []*faultproxy.Rule

func (all rules) remove() {
	for _, r := range all {
		r.Remove()
	}
}

func (all rules) release() {
	for _, r := range all {
		r.Release()
	}
}

func startCluster(t *testing.T, o orders, n int) *cluster {
	c := &cluster{t: t, server: testserver.Start(t, o.Server), orders: o, dir: t.TempDir(), faults: map[string]int{}}
	if *logs != "" {
		c.dir = *logs
	}
	c.direct = testserver.Connect(t, c.server.URI, func(opts *options.ClientOptions) {
		opts.SetDirect(!o.Discover).SetServerSelectionTimeout(time.Second)
		if o.Discover {
			opts.SetServerSelectionTimeout(40 * time.Second)
		}
	})
	if o.Discover { // an election takes longer than a worker waits, and a worker is told only of its keys
		require.NoError(t, c.direct.Database(o.DB).CreateCollection(t.Context(), lockColl))
	}
	c.makeRegisters()
	for i := range n {
		m := &member{python: o.Python != "" && i%2 == 1}
		if o.Discover {
			for _, host := range c.server.Members {
				m.proxies = append(m.proxies, faultproxy.New(t, host))
			}
			m.each((*faultproxy.Proxy).KeepAddresses)
		} else {
			m.proxies = append(m.proxies, faultproxy.New(t, c.server.URI))
		}
		c.members = append(c.members, m)
		c.start(m)
	}
	return c
}

// start starts a worker process under a new name: one that was killed does not come back.
func (c *cluster) start(m *member) {
	c.started++
	o := c.orders
	o.URI, o.Client, o.FirstOp = m.proxies[0].DirectURI(), c.started, c.started*1_000_000
	if o.Discover {
		o.URI, o.Via = c.server.URI, map[string]string{}
		for i, host := range c.server.Members {
			o.Via[host] = m.proxies[i].Addr()
		}
	}
	o.LongHolds = o.LongHolds && c.started == 1
	o.Log = filepath.Join(c.dir, fmt.Sprintf("client-%d.log", c.started))
	m.owner = ownerOf(o)
	role := workerRole
	switch {
	case o.Paths:
		role = pathRole
	case m.python:
		role = pythonRole
	}
	m.process = testchild.Start(c.t, role, o)
}

func (c *cluster) signal(m *member, s syscall.Signal) {
	if err := m.process.Process.Signal(s); err != nil {
		c.t.Errorf("signal %v: %v", s, err)
	}
}

// nemesis injects one fault after the other until the context ends.
func (c *cluster) nemesis(ctx context.Context) {
	for ctx.Err() == nil {
		c.strike(ctx)
		pause(ctx, 50*time.Millisecond+rand.N(500*time.Millisecond))
	}
}

// strike injects one fault.
func (c *cluster) strike(ctx context.Context) {
	switch rand.N(13) {
	case 0:
		c.count("server killed and restarted")
		c.server.Do("kill")
		pause(ctx, rand.N(c.orders.TTL/2))
		c.server.Do("restart")
	case 1:
		if err := c.server.Try("stepdown?seconds=1"); err != nil { // it may not be primary again yet
			c.t.Log(err)
		} else {
			c.count("server stepped down")
		}
	default:
		c.disturb(ctx, c.members[rand.N(len(c.members))])
	}
}

// disturb injects one fault into a worker process, the network between it and the server, or a
// record.
func (c *cluster) disturb(ctx context.Context, m *member) {
	ttl := c.orders.TTL
	writes := []string{"findAndModify"}
	if c.orders.Paths {
		writes = append(writes, "update") // by which a lock is added
	}
	switch rand.N(11) {
	case 0:
		c.count("process killed with -9")
		m.process.Kill()
		pause(ctx, rand.N(ttl))
		c.start(m)
	case 1, 2:
		c.count("process stopped and continued")
		c.signal(m, syscall.SIGSTOP)
		pause(ctx, rand.N(2*ttl))
		c.signal(m, syscall.SIGCONT)
	case 3:
		c.count("link cut")
		m.each((*faultproxy.Proxy).Cut)
		pause(ctx, rand.N(3*ttl/2))
		m.each((*faultproxy.Proxy).Restore)
	case 4:
		c.count("link silent")
		m.each((*faultproxy.Proxy).Silence)
		pause(ctx, rand.N(3*ttl/2))
		m.each((*faultproxy.Proxy).DropConnections)
		m.each((*faultproxy.Proxy).Restore)
	case 5:
		c.count("link slow")
		r := m.on(faultproxy.Command("findAndModify", "hello", "update"), faultproxy.DelayReply(rand.N(ttl/4)))
		pause(ctx, rand.N(ttl))
		r.remove()
	case 6:
		c.count("replies lost")
		m.on(faultproxy.Command(append(writes, "delete")...).Next(1+rand.N(3)), faultproxy.DropReply())
	case 7:
		c.count("command applied late")
		r := m.on(oneOfTwo(faultproxy.Command(writes...), faultproxy.Command("delete")).Next(1), faultproxy.Orphan())
		time.AfterFunc(rand.N(3*ttl), r.release)
	case 8:
		c.count("command lost")
		m.on(faultproxy.Command(append(writes, "delete")...).Next(1+rand.N(3)), faultproxy.DropCommand())
	case 9:
		c.count("clock shifted in replies")
		off := rand.N(ttl/40) - ttl/80
		m.each(func(p *faultproxy.Proxy) { p.ShiftClock(off) })
	case 10:
		if c.block(ctx, rand.N(2*ttl)) {
			c.count("document blocked by a transaction")
		}
	}
}

// block keeps one key's record, or the document that is locked itself, in an open transaction
// for a while. The transaction is aborted, so it changes nothing. It reports whether there
// was something to block.
func (c *cluster) block(ctx context.Context, d time.Duration) bool {
	key := c.orders.Keys[rand.N(len(c.orders.Keys))]
	coll := c.direct.Database(c.orders.DB).Collection(lockColl)
	if key == document {
		coll = c.direct.Database(c.orders.DB).Collection(documentColl)
	}
	session, err := c.direct.StartSession()
	if err != nil {
		return false
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), d+5*time.Second)
	defer cancel()
	defer session.EndSession(bounded)
	if err := session.StartTransaction(); err != nil {
		return false
	}
	done, err := coll.UpdateByID(mongo.NewSessionContext(bounded, session), key, bson.D{{Key: "$set", Value: bson.D{{Key: "blocked", Value: true}}}})
	if err == nil {
		pause(ctx, d)
	}
	_ = session.AbortTransaction(bounded) // the server may have been killed
	return err == nil && done.MatchedCount == 1
}

// oneOfTwo is either of two matchers. Commands of the second are rare: among all of them one
// would hardly be met.
func oneOfTwo(often, rare faultproxy.Matcher) faultproxy.Matcher {
	if rand.N(4) == 0 {
		return rare
	}
	return often
}

func (c *cluster) count(fault string) { c.faults[fault]++ }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
