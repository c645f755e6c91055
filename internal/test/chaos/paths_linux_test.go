package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/pathlock"
)

const (
	pathRole = "paths"
	pathColl = "paths"
)

// chaosPaths are paths in each relation that two can have. Those higher up are locked less
// often: a lock of the root makes all others wait.
var chaosPaths = []string{"/", "/a", "/a/b", "/a/b", "/a/b/c", "/a/b/c", "/ab", "/d", "/d/e", "/d/e"}

// A pathNote is a line of a worker's log: what is surely known of a lock from then on.
type pathNote struct {
	Token string
	Hold  history.PathHold // its To is until when it is surely held
	LetGo bool             // its release is about to be sent
}

func pathOrders() orders {
	o := defaultOrders()
	o.Paths = true
	return o
}

func TestNoChaosHoldsPathLocksInConflict(t *testing.T) {
	testserver.URI(t, "crash", "stepdown", "transactions")
	// In some seconds the nemesis may leave no time for a lock: then it gets more.
	for long, tries := *chaosFor/3, 3; ; long *= 2 {
		holds, faults := runPaths(t, pathOrders(), long, (*cluster).nemesis)
		found, beside := history.PathConflicts(holds, chaosTTL/40+time.Millisecond)
		t.Logf("%v: %d grants, %d pairs held at once, faults %v", long, len(holds), beside, faults)
		for _, v := range found {
			t.Error(v)
		}
		want := int(long / time.Second)
		if tries--; tries == 0 || len(holds) >= want {
			assert.GreaterOrEqual(t, len(holds), want, "too few grants: nothing was tried")
			return
		}
	}
}

// runPaths lets workers lock paths for a while under a nemesis, and returns what they surely
// held.
func runPaths(t *testing.T, o orders, long time.Duration, nemesis func(*cluster, context.Context)) ([]history.PathHold, map[string]int) {
	c := startCluster(t, o, processes)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	nemesis(c, ctx)
	for _, m := range c.members {
		m.process.Kill()
	}
	return readPaths(t, c.dir), c.faults
}

func readPaths(t *testing.T, dir string) (holds []history.PathHold) {
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(t, err)
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		byToken := map[string]*history.PathHold{}
		for line := range bytes.Lines(text) {
			var n pathNote
			if json.Unmarshal(line, &n) != nil {
				continue // cut short by a kill
			}
			switch h := byToken[n.Token]; {
			case h == nil:
				byToken[n.Token] = &n.Hold
			case n.LetGo:
				h.To = min(h.To, n.Hold.To)
			default:
				h.To = max(h.To, n.Hold.To)
			}
		}
		for _, h := range byToken {
			if h.To > h.From {
				holds = append(holds, *h)
			}
		}
	}
	return holds
}

// A pathWorker is one process that locks paths until it is killed.
type pathWorker struct {
	worker
	tree *pathlock.Tree
}

func workOnPaths(_ context.Context, o orders) error {
	takeSafetiesOut(o)
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	driver, err := mongo.Connect(options.Client().ApplyURI(o.URI).SetServerSelectionTimeout(2 * time.Second).SetConnectTimeout(time.Second))
	if err != nil {
		return err
	}
	storage, err := pathlock.OnMongo(driver.Database(o.DB).Collection(pathColl))
	if err != nil {
		return err
	}
	tree, err := pathlock.New(storage, "files")
	if err != nil {
		return err
	}
	w := &pathWorker{worker{orders: o, log: log}, tree}
	var users sync.WaitGroup
	for range o.Users {
		users.Go(func() {
			for {
				w.lockSomething()
				time.Sleep(rand.N(20 * time.Millisecond))
			}
		})
	}
	users.Wait()
	return nil
}

func (w *pathWorker) lockSomething() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*w.TTL)
	defer cancel()
	r := pathlock.Request{
		Path: chaosPaths[rand.N(len(chaosPaths))], Mode: pathlock.Exclusive, Depth: pathlock.Zero,
		Timeouts: []time.Duration{w.TTL/4 + rand.N(w.TTL)},
	}
	if rand.N(3) == 0 {
		r.Mode = pathlock.Shared
	}
	if rand.N(2) == 0 {
		r.Depth = pathlock.Infinity
	}
	lock := w.tree.Lock
	if rand.N(2) == 0 {
		lock = w.tree.LockWait
	}
	sent := uptime()
	l, err := lock(ctx, r)
	if err != nil {
		return
	}
	n := pathNote{Token: l.Token, Hold: history.PathHold{
		Client: w.Client, Path: l.Path, Shared: l.Mode == pathlock.Shared, Infinity: l.Depth == pathlock.Infinity, From: uptime(), To: sent + l.Left,
	}}
	w.writeDown(n)
	for range rand.N(4) {
		time.Sleep(rand.N(w.TTL / 8))
		sent := uptime()
		if l, err = w.tree.Refresh(ctx, l.Token); err != nil {
			break
		}
		n.Hold.To = sent + l.Left
		w.writeDown(n)
	}
	if rand.N(4) == 0 { // it runs out
		return
	}
	n.LetGo, n.Hold.To = true, uptime()
	w.writeDown(n)
	_ = w.tree.Release(ctx, n.Token) // or it runs out
}
