package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/testserver"
)

// A troop is the worker processes, each behind a proxy of its own.
type troop struct {
	t       *testing.T
	server  *testserver.Own
	orders  orders
	dir     string
	members []*member
	started int
	faults  map[string]int
}

type member struct {
	proxy   *faultproxy.Proxy
	cmd     *exec.Cmd
	stopped bool
}

func newTroop(t *testing.T, o orders, n int) *troop {
	tr := &troop{t: t, server: testserver.Start(t, ""), orders: o, dir: t.TempDir(), faults: map[string]int{}}
	for range n {
		m := &member{proxy: faultproxy.New(t, tr.server.URI)}
		tr.members = append(tr.members, m)
		tr.start(m)
	}
	t.Cleanup(func() {
		for _, m := range tr.members {
			tr.kill(m)
		}
	})
	return tr
}

// start makes a new process, with a new name: one that was killed does not come back.
func (tr *troop) start(m *member) {
	tr.started++
	o := tr.orders
	o.URI, o.Client, o.First = m.proxy.DirectURI(), tr.started, tr.started*1_000_000
	o.Long = o.Long && tr.started == 1
	o.Log = filepath.Join(tr.dir, fmt.Sprintf("client-%d.log", tr.started))
	text, err := json.Marshal(o)
	if err != nil {
		tr.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		tr.t.Fatal(err)
	}
	m.cmd = exec.Command(self, "-test.run", "^$")
	m.cmd.Env = append(os.Environ(), ordersVariable+"="+string(text))
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		tr.t.Fatal(err)
	}
	m.stopped = false
}

func (tr *troop) kill(m *member) {
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
	m.cmd = nil
}

// torment does harm until the time is over, and then gives everybody a while to
// recover.
func (tr *troop) torment(ctx context.Context) {
	ttl := tr.orders.TTL
	for ctx.Err() == nil {
		m := tr.members[rand.N(len(tr.members))]
		switch rand.N(12) {
		case 0:
			tr.did("process killed with -9")
			tr.kill(m)
			pause(ctx, rand.N(ttl))
			tr.start(m)
		case 1, 2:
			tr.did("process stopped and continued")
			_ = m.cmd.Process.Signal(syscall.SIGSTOP)
			pause(ctx, rand.N(2*ttl))
			_ = m.cmd.Process.Signal(syscall.SIGCONT)
		case 3:
			tr.did("server killed and restarted")
			tr.server.Do("kill")
			pause(ctx, rand.N(ttl/2))
			tr.server.Do("restart")
		case 4:
			if err := tr.server.Try("stepdown?seconds=1"); err != nil { // not while it is still out of office
				tr.t.Log(err)
			} else {
				tr.did("server stepped down")
			}
		case 5:
			tr.did("link cut")
			m.proxy.Cut()
			pause(ctx, rand.N(3*ttl/2))
			m.proxy.Restore()
		case 6:
			tr.did("link silent")
			m.proxy.Silence()
			pause(ctx, rand.N(3*ttl/2))
			m.proxy.DropConnections()
			m.proxy.Restore()
		case 7:
			tr.did("link slow")
			r := m.proxy.On(faultproxy.Command("findAndModify", "hello", "update"), faultproxy.DelayReply(rand.N(ttl/4)))
			pause(ctx, rand.N(ttl))
			r.Remove()
		case 8:
			tr.did("replies lost")
			m.proxy.On(faultproxy.Command("findAndModify").Next(1+rand.N(3)), faultproxy.DropReply())
		case 9:
			tr.did("command applied late")
			r := m.proxy.On(faultproxy.Command("findAndModify").Next(1), faultproxy.Orphan())
			time.AfterFunc(rand.N(3*ttl), r.Release)
		case 10:
			tr.did("command lost")
			m.proxy.On(faultproxy.Command("findAndModify").Next(1+rand.N(3)), faultproxy.DropCommand())
		case 11:
			tr.did("clock shifted in replies")
			m.proxy.ShiftClock(rand.N(ttl/40) - ttl/80)
		}
		pause(ctx, 50*time.Millisecond+rand.N(500*time.Millisecond))
	}
}

func (tr *troop) did(what string) { tr.faults[what]++ }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
