package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/testchild"
	"github.com/mongolock/mongolock/internal/testserver"
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

type member struct {
	proxy   *faultproxy.Proxy
	process *testchild.Process
}

func startCluster(t *testing.T, o orders, n int) *cluster {
	c := &cluster{t: t, server: testserver.Start(t, ""), orders: o, dir: t.TempDir(), faults: map[string]int{}}
	c.direct = testserver.Connect(t, c.server.URI, func(o *options.ClientOptions) {
		o.SetDirect(true).SetServerSelectionTimeout(time.Second)
	})
	for range n {
		m := &member{proxy: faultproxy.New(t, c.server.URI)}
		c.members = append(c.members, m)
		c.start(m)
	}
	return c
}

// start starts a worker process under a new name: one that was killed does not come back.
func (c *cluster) start(m *member) {
	c.started++
	o := c.orders
	o.URI, o.Client, o.FirstOp = m.proxy.DirectURI(), c.started, c.started*1_000_000
	o.LongHolds = o.LongHolds && c.started == 1
	o.Log = filepath.Join(c.dir, fmt.Sprintf("client-%d.log", c.started))
	m.process = testchild.Start(c.t, workerRole, o)
}

func (c *cluster) signal(m *member, s syscall.Signal) {
	if err := m.process.Process.Signal(s); err != nil {
		c.t.Errorf("signal %v: %v", s, err)
	}
}

// nemesis injects one fault after the other until the context ends.
func (c *cluster) nemesis(ctx context.Context) {
	ttl := c.orders.TTL
	for ctx.Err() == nil {
		m := c.members[rand.N(len(c.members))]
		switch rand.N(13) {
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
			c.count("server killed and restarted")
			c.server.Do("kill")
			pause(ctx, rand.N(ttl/2))
			c.server.Do("restart")
		case 4:
			if err := c.server.Try("stepdown?seconds=1"); err != nil { // it may not be primary again yet
				c.t.Log(err)
			} else {
				c.count("server stepped down")
			}
		case 5:
			c.count("link cut")
			m.proxy.Cut()
			pause(ctx, rand.N(3*ttl/2))
			m.proxy.Restore()
		case 6:
			c.count("link silent")
			m.proxy.Silence()
			pause(ctx, rand.N(3*ttl/2))
			m.proxy.DropConnections()
			m.proxy.Restore()
		case 7:
			c.count("link slow")
			r := m.proxy.On(faultproxy.Command("findAndModify", "hello", "update"), faultproxy.DelayReply(rand.N(ttl/4)))
			pause(ctx, rand.N(ttl))
			r.Remove()
		case 8:
			c.count("replies lost")
			m.proxy.On(faultproxy.Command("findAndModify", "delete").Next(1+rand.N(3)), faultproxy.DropReply())
		case 9:
			c.count("command applied late")
			r := m.proxy.On(oneOfTwo(faultproxy.Command("findAndModify"), faultproxy.Command("delete")).Next(1), faultproxy.Orphan())
			time.AfterFunc(rand.N(3*ttl), r.Release)
		case 10:
			c.count("command lost")
			m.proxy.On(faultproxy.Command("findAndModify", "delete").Next(1+rand.N(3)), faultproxy.DropCommand())
		case 11:
			c.count("clock shifted in replies")
			m.proxy.ShiftClock(rand.N(ttl/40) - ttl/80)
		case 12:
			if c.block(ctx, rand.N(2*ttl)) {
				c.count("document blocked by a transaction")
			}
		}
		pause(ctx, 50*time.Millisecond+rand.N(500*time.Millisecond))
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
