package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Proxy stands between drivers and one server. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	uri      *url.URL // of the target
	target   string   // host:port of the server
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup // the accepting goroutine and those of connections
	lastID   atomic.Int32   // request ID of the proxy's own replies
	shift    atomic.Int64   // a clockShift

	keepsAddresses atomic.Bool
	rules          atomic.Pointer[[]*Rule] // replaced as a whole, under mu

	mu      sync.Mutex // protects what follows; never held across I/O that can block
	state   state
	conns   map[*conn]struct{}
	counted map[string]int
}

type state int

const (
	open   state = iota
	cut          // new connections are reset
	silent       // new connections get no answer
	closed
)

// New starts a proxy for the server at target, a MongoDB URI or a plain host:port. It is closed
// when the test ends.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := Start(target)
	switch {
	case errors.Is(err, errSeveral):
		t.Skipf("needs one server: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Start starts a proxy. The caller must close it.
func Start(target string) (*Proxy, error) {
	uri, err := parseTarget(target)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{
		listener: listener,
		uri:      uri,
		ctx:      ctx,
		cancel:   cancel,
		target:   uri.Host,
		conns:    make(map[*conn]struct{}),
		counted:  make(map[string]int),
	}
	p.rules.Store(&[]*Rule{})
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the host:port on which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URI returns the target's URI with the proxy in place of the server.
func (p *Proxy) URI() string {
	uri := *p.uri
	uri.Host = p.Addr()
	return uri.String()
}

// DirectURI returns URI with directConnection=true: the driver does not discover other members.
func (p *Proxy) DirectURI() string {
	uri := *p.uri
	uri.Host = p.Addr()
	query := uri.Query()
	query.Set("directConnection", "true")
	uri.RawQuery = query.Encode()
	return uri.String()
}

// KeepAddresses makes the proxy leave the members' addresses in replies to hello. That is for a
// driver whose own dialer leads each member's address to that member's proxy, as one needs in
// front of a set of several.
func (p *Proxy) KeepAddresses() { p.keepsAddresses.Store(true) }

// On adds a rule.
func (p *Proxy) On(m Matcher, actions ...Action) *Rule {
	r := &Rule{
		proxy:    p,
		matcher:  m,
		actions:  actions,
		fired:    latch{ch: make(chan struct{})},
		applied:  latch{ch: make(chan struct{})},
		released: latch{ch: make(chan struct{})},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	rules := append(slices.Clone(*p.rules.Load()), r)
	p.rules.Store(&rules)
	return r
}

func (p *Proxy) forget(r *Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rules := slices.DeleteFunc(slices.Clone(*p.rules.Load()), func(o *Rule) bool { return o == r })
	p.rules.Store(&rules)
}

// ShiftClock makes the server's clock appear to be off by d. Every BSON date in a reply is
// shifted by d, and every date in a command is shifted back. So a date that the client
// computes from what it saw means the same moment to the server, and dates read back are
// those written. Dates that the server draws itself ($currentDate, localTime, $$NOW, TTL
// deletion) appear shifted and agree with the others. Dates in strings and ObjectIDs stay.
//
// Set it before the first command. A later change shifts all stored dates together with the
// clock, which no real clock does.
func (p *Proxy) ShiftClock(d time.Duration) { p.shift.Store(int64(d)) }

// Cut resets all connections, and every new one until Restore, as if no server listened. What
// rules hold is lost.
func (p *Proxy) Cut() {
	p.enter(cut)
	p.DropConnections()
}

// Silence drops everything on all connections, new ones included, until Restore: a network that
// loses every packet.
func (p *Proxy) Silence() {
	p.enter(silent)
	for _, c := range p.connections() {
		c.silent.Store(true)
	}
}

// Restore ends Cut and Silence. Connections on which bytes were lost, also by a rule, are reset.
func (p *Proxy) Restore() {
	p.enter(open)
	for _, c := range p.connections() {
		if c.silent.Load() {
			c.abort(true)
		}
	}
}

// DropConnections resets all connections. New ones are accepted, unless after Cut.
func (p *Proxy) DropConnections() {
	for _, c := range p.connections() {
		c.abort(true)
	}
}

// Close ends the proxy and all its connections, and waits for its goroutines. Messages that
// rules hold are lost.
func (p *Proxy) Close() error {
	p.enter(closed)
	p.cancel()
	err := p.listener.Close()
	p.DropConnections()
	p.running.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("faultproxy: %w", err)
	}
	return nil
}

// Count returns how often clients sent a command, retries included, in exactly this spelling.
func (p *Proxy) Count(command string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counted[command]
}

// Counts returns Count for every command so far.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counted)
}

// Connections returns how many connections are open.
func (p *Proxy) Connections() int { return len(p.connections()) }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if p.ctx.Err() != nil {
				return
			}
			select { // perhaps out of file descriptors
			case <-time.After(10 * time.Millisecond):
			case <-p.ctx.Done():
			}
			continue
		}
		c := newConn(p, client)
		switch p.admit(c) {
		case open, silent:
			p.running.Go(c.serve)
		default:
			c.abort(true)
		}
	}
}

// admit adds c to the connections if the proxy accepts new ones.
func (p *Proxy) admit(c *conn) state {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == open || p.state == silent {
		c.silent.Store(p.state == silent)
		p.conns[c] = struct{}{}
	}
	return p.state
}

func (p *Proxy) dismiss(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) enter(s state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != closed {
		p.state = s
	}
}

func (p *Proxy) connections() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.conns))
}

func (p *Proxy) nextID() int32 { return p.lastID.Add(1) }
