package servers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A program describes how to run one kind of server program; process has what all of them share.
type program struct {
	path string
	// args are the arguments for a server on the loopback port, all its files under dir.
	args func(port int, dir string, auth bool) ([]string, error)
	// listening is part of the line that the program prints once it accepts connections. Only this
	// line proves that this process has the port, and not another that was faster.
	listening string
	// initiate, if not nil, turns a new server into a replica set.
	initiate func(ctx context.Context, uri, host string) error
}

// A process is the backend of a server that is a process of its own.
type process struct {
	program program
	auth    bool
	log     *slog.Logger

	dir   string
	port  int
	user  *url.Userinfo
	clock *clock // nil: the machine's own
	addr  string // by which all clients reach it, if that is a link and not its own port
	child *child // nil before the first start; its exited channel tells whether it runs

	lastPID atomic.Int64 // the child's process ID, for those who are not the backend's one caller
}

func newProcess(p program, s Config) *process {
	return &process{program: p, auth: s.Auth, port: s.Port, log: s.Log}
}

func (p *process) start(ctx context.Context) (uri string, err error) {
	if err := p.launch(ctx); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if p.program.initiate != nil {
		if err := p.program.initiate(ctx, p.uri(), p.host()); err != nil {
			return "", err
		}
	}
	if err := awaitPrimary(ctx, p.uri()); err != nil {
		return "", err
	}
	if p.auth {
		return p.createRoot(ctx)
	}
	return p.uri(), nil
}

// launch makes the directory and runs the process for the first time. If it fails it has cleaned up.
func (p *process) launch(ctx context.Context) (err error) {
	if p.dir, err = os.MkdirTemp("", "devmongo-"); err != nil {
		return err
	}
	if p.clock != nil {
		err = p.clock.keepIn(p.dir)
	}
	if err == nil {
		err = p.runOnAPort(ctx)
	}
	if err != nil {
		err = errors.Join(err, p.stop())
	}
	return err
}

// runOnAPort runs the process on the given port, or on a free one.
func (p *process) runOnAPort(ctx context.Context) (err error) {
	if p.port != 0 {
		return p.run(ctx)
	}
	const attempts = 5 // another program may take a free port first
	for range attempts {
		if p.port, err = freePort(); err != nil {
			return err
		}
		if err = p.run(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			break // a process whose port is taken exits at once; it does not time out
		}
	}
	return err
}

// createRoot creates the first user, as a server with access control allows from its own machine.
func (p *process) createRoot(ctx context.Context) (string, error) {
	password := rand.Text()
	err := command(ctx, p.uri(), bson.D{
		{Key: "createUser", Value: "root"},
		{Key: "pwd", Value: password},
		{Key: "roles", Value: bson.A{"root"}},
	})
	if err != nil {
		return "", fmt.Errorf("creating the first user: %w", err)
	}
	p.user = url.UserPassword("root", password)
	return p.uri(), nil
}

func (p *process) uri() string {
	u := url.URL{Scheme: "mongodb", User: p.user, Host: p.host(), Path: "/"}
	if p.user != nil {
		u.RawQuery = "authSource=admin"
	}
	return u.String()
}

func (p *process) host() string { return cmp.Or(p.addr, fmt.Sprintf("127.0.0.1:%d", p.port)) }

// run starts the process and waits until it listens.
func (p *process) run(ctx context.Context) error {
	args, err := p.program.args(p.port, p.dir, p.auth)
	if err != nil {
		return err
	}
	p.child, err = startChild(p.program.path, args, p.clock.environ(), p.program.listening, p.log)
	if err != nil {
		return err
	}
	p.lastPID.Store(int64(p.child.cmd.Process.Pid))
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-p.child.ready:
		return nil
	case <-p.child.exited:
		return fmt.Errorf("%s: %w", filepath.Base(p.program.path), p.child.failure())
	case <-ctx.Done():
		p.child.kill()
		return fmt.Errorf("%s does not listen: %w", filepath.Base(p.program.path), context.Cause(ctx))
	}
}

var errNotRunning = errors.New("the server is not running")

// startTimeout is generous, because a start includes the recovery after a kill, on a busy machine.
const startTimeout = 3 * time.Minute

func (p *process) kill() error {
	if !p.running() {
		return errNotRunning
	}
	p.child.kill()
	return nil
}

func (p *process) restart(ctx context.Context) error {
	if err := p.rerun(ctx); err != nil {
		return err
	}
	return awaitPrimary(ctx, p.uri())
}

// rerun runs the process on its data, and ends it first if it runs.
func (p *process) rerun(ctx context.Context) error {
	if p.running() {
		p.child.end()
	}
	return p.run(ctx)
}

func (p *process) suspend() error { return p.signal(suspendSignal) }
func (p *process) resume() error  { return p.signal(continueSignal) }

func (p *process) signal(s os.Signal) error {
	switch {
	case s == nil:
		return fmt.Errorf("a process cannot be stopped on this system: %w", errors.ErrUnsupported)
	case !p.running():
		return errNotRunning
	}
	return p.child.cmd.Process.Signal(s)
}

func (p *process) setClock(off time.Duration) error { return p.clock.set(off) }

func (p *process) nodes() []node { return []node{p} }

// pid returns the process's ID, or that of the last one if it does not run: what has ended has no
// connections. Unlike the rest it may be called at any time.
func (p *process) pid() int { return int(p.lastPID.Load()) }

// stop kills it, as its data goes too. SecantusDB takes ten seconds to end in good order if a
// client left a waiting cursor.
func (p *process) stop() error {
	if p.running() {
		p.child.kill()
	}
	return os.RemoveAll(p.dir)
}

func (p *process) running() bool {
	if p.child == nil {
		return false
	}
	select {
	case <-p.child.exited:
		return false
	default:
		return true
	}
}

// freePort returns a free port below the range from which the kernel takes the local ports of outgoing
// connections. With a port from that range, a client that reconnects while the server is down would
// sooner or later be given the server's port as its local port, be connected to itself, and keep the
// server from coming back.
func freePort() (int, error) {
	const lowest, count = 20000, 10000
	var last error
	for range 100 {
		n, err := rand.Int(rand.Reader, big.NewInt(count))
		if err != nil {
			return 0, err
		}
		port := lowest + int(n.Int64())
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("no free port: %w", last)
}
