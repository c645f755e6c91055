package faultproxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A conn is one client's connection and the one to the server that belongs to it.
// Two goroutines carry messages, one each way.
type conn struct {
	proxy  *Proxy
	client net.Conn
	ctx    context.Context // ends with abort
	cancel context.CancelFunc
	silent atomic.Bool // swallow everything

	writing sync.Mutex // one message at a time to the client

	mu         sync.Mutex // protects what follows; never held across I/O that can block
	server     net.Conn
	clientGone bool
	pending    map[int32]*exchange // by the request that the reply will name
	late       int                 // how many of them are late
}

// An exchange is a command that is followed until its reply.
type exchange struct {
	conn    *conn
	name    string
	command bson.Raw // the whole command as the client sent it; nil if malformed or not asked for
	hello   bool
	late    bool // wants the reply though the client may be gone
	acts    []act
}

type act struct {
	Action
	rule *Rule
}

func newConn(p *Proxy, client net.Conn) *conn {
	ctx, cancel := context.WithCancel(p.ctx)
	return &conn{proxy: p, client: client, ctx: ctx, cancel: cancel, pending: make(map[int32]*exchange)}
}

func (c *conn) serve() {
	defer c.proxy.dismiss(c)
	defer c.abort(false)
	if c.silent.Load() {
		_, _ = io.Copy(io.Discard, c.client)
		return
	}
	server, err := (&net.Dialer{}).DialContext(c.ctx, "tcp", c.proxy.Target())
	if err != nil {
		c.abort(true)
		return
	}
	if !c.adopt(server) {
		return
	}
	var down sync.WaitGroup
	down.Go(func() { c.downstream(server) })
	c.upstream(server)
	c.leave()
	down.Wait()
}

// adopt keeps the connection to the server, unless c was aborted meanwhile.
func (c *conn) adopt(server net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		_ = server.Close()
		return false
	}
	c.server = server
	return true
}

// upstream carries commands until the client or c is done.
func (c *conn) upstream(server net.Conn) {
	var (
		r   = bufio.NewReader(c.client)
		buf []byte
		err error
	)
	for {
		if buf, err = readMessage(r, buf); err != nil {
			return
		}
		if c.silent.Load() {
			continue
		}
		m, err := parseMessage(buf)
		if err != nil || m.body == nil {
			m = &message{raw: buf} // let the server judge
		} else if m = c.command(m); m == nil {
			if c.ctx.Err() != nil {
				return
			}
			continue
		}
		if _, err := server.Write(m.raw); err != nil {
			return
		}
	}
}

// command returns what is to be sent to the server in the place of m, if anything.
func (c *conn) command(m *message) *message {
	x := c.proxy.match(c, m)
	var what fate
	if x != nil {
		m, what = x.run(m, func(a Action) step { return a.command })
	}
	switch what {
	case forward:
		// The shift is next to the server: rules live in the client's time.
		if !c.proxy.shift.Load().back().apply(m) {
			c.abort(true)
			return nil
		}
		if x != nil && m.flags&flagMoreToCome == 0 {
			c.expect(m.requestID, x)
		}
		return m
	case respond:
		c.respond(m)
	default:
		c.end(what)
	}
	return nil
}

// downstream carries replies until the server is done, or nobody wants any.
func (c *conn) downstream(server net.Conn) {
	defer c.abort(false)
	var (
		r   = bufio.NewReader(server)
		buf []byte
		err error
	)
	for {
		if buf, err = readMessage(r, buf); err != nil {
			return
		}
		m, err := parseMessage(buf)
		if err != nil || m.body == nil {
			m = &message{raw: buf}
		} else {
			m = c.reply(m)
		}
		if m != nil && !c.silent.Load() {
			c.respond(m)
		}
		if c.ctx.Err() != nil || c.over() {
			return
		}
	}
}

// reply returns what is to be sent to the client in the place of m, if anything.
func (c *conn) reply(m *message) *message {
	x := c.answered(m)
	if x != nil {
		for _, a := range x.acts {
			a.rule.applied.open()
		}
	}
	if c.silent.Load() {
		return nil
	}
	if !c.proxy.shift.Load().apply(m) {
		c.abort(true)
		return nil
	}
	if x == nil {
		return m
	}
	if x.hello {
		m = c.proxy.readdressed(m)
	}
	m, what := x.run(m, func(a Action) step { return a.reply })
	if what != forward {
		c.end(what)
		return nil
	}
	return m
}

// run lets the actions befall m until one of them ends the exchange.
func (x *exchange) run(m *message, part func(Action) step) (*message, fate) {
	for _, a := range x.acts {
		do := part(a.Action)
		if do == nil {
			continue
		}
		a.rule.fired.open()
		var what fate
		if m, what = do(x, a.rule, m); what != forward {
			return m, what
		}
	}
	return m, forward
}

func (c *conn) end(what fate) {
	switch what {
	case silence:
		c.silent.Store(true)
	case hangUp:
		c.abort(false)
	default:
		c.abort(true)
	}
}

func (c *conn) respond(m *message) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.client.Write(m.raw); err != nil {
		c.leave()
	}
}

func (c *conn) expect(id int32, x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending[id] = x
	if x.late {
		c.late++
	}
}

// answered returns the exchange that m is a reply to, nil if it was not followed.
// A reply with more to come is what the next one names as its request.
func (c *conn) answered(m *message) *exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.pending[m.responseTo]
	if x == nil {
		return nil
	}
	delete(c.pending, m.responseTo)
	if m.flags&flagMoreToCome != 0 {
		c.pending[m.requestID] = x
	} else if x.late {
		c.late--
	}
	return x
}

// leave is called when the client is gone. The server's side goes with it, unless
// a rule wants to see how a command ends.
func (c *conn) leave() {
	c.mu.Lock()
	c.clientGone = true
	c.mu.Unlock()
	_ = c.client.Close()
	if c.over() {
		c.abort(false)
	}
}

func (c *conn) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clientGone && c.late == 0
}

// abort ends both sides now, by RST if asked to. What is closed already stays as it was.
func (c *conn) abort(hard bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, side := range []net.Conn{c.client, c.server} {
		if tcp, ok := side.(*net.TCPConn); ok && hard {
			_ = tcp.SetLinger(0)
		}
	}
	c.cancel()
	_ = c.client.Close()
	if c.server != nil {
		_ = c.server.Close()
	}
}
