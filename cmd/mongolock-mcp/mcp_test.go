//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A client is an MCP client of the SDK with a server of its own.
type client struct {
	t       *testing.T
	session *mcp.ClientSession
	server  *exec.Cmd
}

// connects starts a server as a client's configuration does.
func (p *program) connects(name string, args ...string) *client {
	p.t.Helper()
	self, err := os.Executable()
	require.NoError(p.t, err)
	cmd := &exec.Cmd{Path: self, Args: append([]string{serverName}, args...), Env: p.env, Dir: p.dir, Stderr: os.Stderr}
	session, err := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, nil).Connect(p.t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = session.Close(); _ = cmd.Process.Kill() })
	return &client{p.t, session, cmd}
}

// calls has a tool called. The answer is decoded, and an error is what the tool said.
func (c *client) calls(tool string, args map[string]any, answer any) error {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	require.NoError(c.t, err, "%s %v", tool, args)
	if r.IsError {
		return fmt.Errorf("%s", r.Content[0].(*mcp.TextContent).Text)
	}
	if answer != nil {
		raw, err := json.Marshal(r.StructuredContent)
		require.NoError(c.t, err)
		require.NoError(c.t, json.Unmarshal(raw, answer))
	}
	return nil
}

func (c *client) lock(path string, more ...any) (g granted, err error) {
	c.t.Helper()
	args := map[string]any{"path": path}
	for i := 0; i < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	return g, c.calls("lock", args, &g)
}

func (c *client) try(path string) (g granted, err error) {
	c.t.Helper()
	return g, c.calls("try", map[string]any{"path": path}, &g)
}

// places are where trees may be.
func (p *program) places() map[string][]string {
	return map[string][]string{"in a directory": {"--dir", filepath.Join(p.dir, "locks")}, "on MongoDB": nil}
}

func TestTwoAgentsNeverHaveOnePath(t *testing.T) {
	p := newProgram(t)
	for where, args := range p.places() {
		agents := []*client{p.connects("ada", args...), p.connects("bob", args...)}
		var mu sync.Mutex
		inside, turns := 0, 0
		var working sync.WaitGroup
		for i, c := range agents {
			working.Go(func() {
				for n := range 15 {
					path := []string{"src", "src/api", "/src/api/v1"}[(n+i)%3]
					g, err := c.lock(path, "ttl_seconds", 60, "wait_seconds", 25)
					if !assert.NoError(t, err, where) {
						return
					}
					mu.Lock()
					inside++
					turns++
					assert.Equal(t, 1, inside, "agents within src, %s", where)
					mu.Unlock()
					time.Sleep(5 * time.Millisecond) // real: long enough for another to come in, if it could
					mu.Lock()
					inside--
					mu.Unlock()
					assert.NoError(t, c.calls("release", map[string]any{"token": g.Token}, nil), where)
				}
			})
		}
		working.Wait()
		assert.Equal(t, 30, turns, where)
	}
}

// The control: paths that do not overlap are held at a time, and the test above would see that.
func TestControlTwoAgentsHaveTwoPathsAtATime(t *testing.T) {
	p := newProgram(t)
	ada, bob := p.connects("ada", "--dir", p.dir), p.connects("bob", "--dir", p.dir)
	_, err := ada.lock("src/api")
	require.NoError(t, err)
	_, err = bob.lock("src/web")
	assert.NoError(t, err)
}

func TestAnAgentIsToldTheHolderOfAPath(t *testing.T) {
	p := newProgram(t)
	for where, args := range p.places() {
		ada, bob := p.connects("ada", args...), p.connects("bob", args...)
		g, err := ada.lock("src//api/", "note", "refactoring", "ttl_seconds", 90)
		require.NoError(t, err, where)
		assert.Equal(t, granted{Token: g.Token, Path: "/src/api", Mode: "exclusive", Depth: "infinity", TTL: 90}, g, where)
		_, err = bob.try("src/api/v1")
		assert.ErrorContains(t, err, "src/api/v1 is held: /src/api, exclusive, depth infinity, by ", where)
		assert.ErrorContains(t, err, ": ada: refactoring", where)
		_, err = bob.lock("src", "wait_seconds", 1)
		assert.ErrorContains(t, err, "src is held: /src/api, ", where)
		_, err = ada.try("src/api")
		assert.ErrorContains(t, err, "src/api is held by you already, with the token "+g.Token, where)
		var seen listed
		require.NoError(t, ada.calls("list", nil, &seen), where)
		require.Len(t, seen.Locks, 1, where)
		assert.True(t, seen.Locks[0].Mine, where)
		var all any
		require.NoError(t, ada.calls("list", nil, &all), where)
		assert.NotContains(t, fmt.Sprint(all), g.Token, "a token is its holder's")
		require.NoError(t, bob.calls("list", map[string]any{"path": "src"}, &seen), where)
		assert.False(t, seen.Locks[0].Mine, where)
		assert.ErrorContains(t, bob.calls("release", map[string]any{"token": g.Token}, nil), "token: this client holds no lock with it", where)
		assert.ErrorContains(t, bob.calls("renew", map[string]any{"token": g.Token}, nil), "token: this client holds no lock with it", where)
		require.NoError(t, ada.calls("renew", map[string]any{"token": g.Token, "ttl_seconds": 120}, &g), where)
		assert.InDelta(t, 120, g.TTL, 0)
		require.NoError(t, ada.calls("release", map[string]any{"token": g.Token}, nil), where)
		_, err = bob.try("src")
		assert.NoError(t, err, where)
	}
}

func TestAnAgentThatForgetsALockLosesIt(t *testing.T) {
	p := newProgram(t)
	ada, bob := p.connects("ada", "--dir", p.dir), p.connects("bob", "--dir", p.dir)
	g, err := ada.lock("src", "ttl_seconds", 1)
	require.NoError(t, err)
	for range 4 {
		time.Sleep(500 * time.Millisecond) // real: half of what it was given
		require.NoError(t, ada.calls("renew", map[string]any{"token": g.Token}, nil))
	}
	began := time.Now()
	_, err = bob.lock("src", "wait_seconds", 20)
	require.NoError(t, err)
	assert.Less(t, time.Since(began), 10*time.Second)
	assert.ErrorContains(t, ada.calls("renew", map[string]any{"token": g.Token}, nil), "stop changing the path")
}

func TestALockThatAPersonBreaksIsLost(t *testing.T) {
	p := newProgram(t)
	for where, args := range p.places() {
		ada := p.connects("ada", args...)
		g, err := ada.lock("src")
		require.NoError(t, err, where)
		p.breaks(args, "src")
		assert.ErrorContains(t, ada.calls("renew", map[string]any{"token": g.Token}, nil), "lease is lost: the path is no longer held by it; stop changing it", where)
	}
}

// role is an argument with which this program is a client that is to be killed.
const role = "MONGOLOCK_TEST_CLIENT"

// TestTheClientThatIsKilled is no test: a process of the next one.
func TestTheClientThatIsKilled(t *testing.T) {
	if os.Getenv(role) == "" {
		return
	}
	p := &program{t: t, env: os.Environ(), dir: t.TempDir()}
	c := p.connects("doomed", strings.Fields(os.Getenv(role))...)
	_, err := c.lock("src")
	fmt.Println("has it:", err, c.server.Process.Pid)
	_, _ = c.lock("docs", "wait_seconds", 60) // which somebody may have
	time.Sleep(time.Minute)                   // it is killed before
}

// doomed starts a process whose MCP client has src locked.
func (p *program) doomed(args ...string) (its *exec.Cmd, server int) {
	p.t.Helper()
	self, err := os.Executable()
	require.NoError(p.t, err)
	out := &output{}
	its = &exec.Cmd{Path: self, Args: []string{self, "-test.run=^TestTheClientThatIsKilled$"}, Env: append(p.env, "TMPDIR="+p.t.TempDir(), role+"="+strings.Join(args, " ")+" "), Stdout: out, Stderr: os.Stderr}
	require.NoError(p.t, its.Start())
	p.t.Cleanup(func() { _ = its.Process.Kill(); _ = its.Wait() })
	require.Eventually(p.t, func() bool {
		_, said, _ := strings.Cut(out.String(), "has it: ")
		n, _ := fmt.Sscanf(said, "<nil> %d\n", &server)
		return n == 1
	}, 20*time.Second, 10*time.Millisecond)
	return its, server
}

func TestTheLocksOfAClientThatIsKilledAreFreedAtOnce(t *testing.T) {
	p := newProgram(t)
	for where, args := range p.places() {
		args = append(args, "--ttl", "5m") // so that it is not the time that frees them
		bob := p.connects("bob", args...)
		doomed, _ := p.doomed(args...)
		_, err := bob.try("src/api")
		require.ErrorContains(t, err, "doomed", where)
		killed := time.Now()
		require.NoError(t, doomed.Process.Signal(syscall.SIGKILL))
		g, err := bob.lock("src/api")
		require.NoError(t, err, where)
		assert.Less(t, time.Since(killed), 10*time.Second, where)
		t.Logf("%s: freed %v after the kill", where, time.Since(killed).Round(time.Millisecond))
		require.NoError(t, bob.calls("release", map[string]any{"token": g.Token}, nil))
	}
}

func TestTheLocksOfAServerThatIsKilledAreFreedByItsTTL(t *testing.T) {
	p := newProgram(t)
	args := []string{"--dir", filepath.Join(p.dir, "locks"), "--ttl", "3s"}
	bob := p.connects("bob", args...)
	_, server := p.doomed(args...)
	time.Sleep(3500 * time.Millisecond) // it is refreshed
	_, err := bob.try("src")
	require.ErrorContains(t, err, "doomed")
	killed := time.Now()
	require.NoError(t, syscall.Kill(server, syscall.SIGKILL))
	_, err = bob.lock("src")
	require.NoError(t, err)
	assert.Less(t, time.Since(killed), 5*time.Second)
	assert.Greater(t, time.Since(killed), time.Second, "it was not the server that freed it")
}

func TestAnAgentsBadInputIsNamed(t *testing.T) {
	p := newProgram(t)
	c := p.connects("ada", "--dir", p.dir, "--longest", "10m")
	for _, bad := range []struct {
		tool string
		args map[string]any
		want string
	}{
		{"lock", map[string]any{}, "path"},
		{"lock", map[string]any{"path": ""}, `path is empty: "/" is the whole tree`},
		{"lock", map[string]any{"path": "../src"}, `not a path: "../src": the segment ".." could mean anything`},
		{"lock", map[string]any{"path": "src", "ttl_seconds": -1}, "ttl_seconds is -1: must be from 1 to 600"},
		{"try", map[string]any{"path": "src", "ttl_seconds": 601}, "ttl_seconds is 601: must be from 1 to 600"},
		{"lock", map[string]any{"path": "src", "wait_seconds": 9999}, "wait_seconds is 9999: must be from 1 to 600"},
		{"lock", map[string]any{"path": "src", "note": strings.Repeat("x", 1025)}, "note has 1025 bytes: at most 1024"},
		{"lock", map[string]any{"path": "src", "wait": 1}, "wait"},
		{"renew", map[string]any{"token": "x"}, "token: this client holds no lock with it"},
		{"renew", map[string]any{"token": "x", "ttl_seconds": 0.5}, "ttl_seconds is 0.5: must be from 1 to 600"},
		{"release", map[string]any{"token": ""}, "token: this client holds no lock with it"},
		{"list", map[string]any{"path": "a/.."}, "path: not a path"},
	} {
		assert.ErrorContains(t, c.calls(bad.tool, bad.args, nil), bad.want, "%s %v", bad.tool, bad.args)
	}
	var seen listed
	require.NoError(t, c.calls("list", nil, &seen))
	assert.Empty(t, seen.Locks)
}

// A client that is killed while it waits takes no lock along, and keeps none until then.
func TestAClientThatIsKilledWhileItWaitsLeavesNothing(t *testing.T) {
	p := newProgram(t)
	for where, args := range p.places() {
		args = append(args, "--ttl", "5m")
		ada, bob := p.connects("ada", args...), p.connects("bob", args...)
		g, err := ada.lock("docs")
		require.NoError(t, err, where)
		doomed, _ := p.doomed(args...)
		time.Sleep(500 * time.Millisecond) // it waits for docs
		require.NoError(t, doomed.Process.Signal(syscall.SIGKILL))
		began := time.Now()
		_, err = bob.lock("src")
		require.NoError(t, err, where)
		require.NoError(t, ada.calls("release", map[string]any{"token": g.Token}, nil), where)
		_, err = bob.lock("docs")
		assert.NoError(t, err, where)
		assert.Less(t, time.Since(began), 15*time.Second, where)
	}
}

// The SDK waits for calls that are under way. A call that waits for a path would keep the client's other
// paths taken, and refreshed, for as long as it likes.
func TestAServerThatIsToldToEndWhileACallWaitsGivesAllBack(t *testing.T) {
	p := newProgram(t)
	for where, args := range p.places() {
		args = append(args, "--ttl", "5m")
		ada, bob := p.connects("ada", args...), p.connects("bob", args...)
		_, err := ada.lock("docs")
		require.NoError(t, err, where)
		_, err = bob.lock("src")
		require.NoError(t, err, where)
		var waits sync.WaitGroup
		waits.Go(func() {
			_, _ = bob.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "lock", Arguments: map[string]any{"path": "docs", "wait_seconds": 120}})
		})
		time.Sleep(500 * time.Millisecond) // it waits for docs
		require.NoError(t, bob.server.Process.Signal(syscall.SIGTERM))
		_, err = ada.lock("src", "wait_seconds", 15)
		require.NoError(t, err, where)
		waits.Wait()
	}
}
