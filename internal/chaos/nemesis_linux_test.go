package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/faultproxy"
)

// A troop is the worker processes, each behind a proxy of its own.
type troop struct {
	t       *testing.T
	server  *ownServer
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
	tr := &troop{t: t, server: newServer(t), orders: o, dir: t.TempDir(), faults: map[string]int{}}
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
			tr.server.do("kill")
			pause(ctx, rand.N(ttl/2))
			tr.server.do("restart")
		case 4:
			if tr.server.may("stepdown?seconds=1") { // not while it is still out of office
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

// An ownServer is one that this test may treat roughly.
type ownServer struct {
	t       *testing.T
	ID, URI string
}

func newServer(t *testing.T) *ownServer {
	s := &ownServer{t: t}
	if err := json.Unmarshal(s.ask(http.MethodPost, "/servers"), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.do("kill") // nobody needs what is in it
		s.ask(http.MethodDelete, "/servers/"+s.ID)
	})
	return s
}

func (s *ownServer) do(what string) { s.ask(http.MethodPost, "/servers/"+s.ID+"/"+what) }

// may is do for what the server can refuse.
func (s *ownServer) may(what string) bool {
	_, err := s.tryTo(http.MethodPost, "/servers/"+s.ID+"/"+what)
	if err != nil {
		s.t.Log(err)
	}
	return err == nil
}

func (s *ownServer) ask(method, path string) []byte {
	body, err := s.tryTo(method, path)
	if err != nil {
		s.t.Fatal(err)
	}
	return body
}

func (s *ownServer) tryTo(method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, os.Getenv("MONGOLOCK_CONTROL")+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s %s: %s, %s, %v", method, path, reply.Status, body, err)
	}
	return body, nil
}
