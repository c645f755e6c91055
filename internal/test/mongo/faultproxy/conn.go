package faultproxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/wire"
)

// A conn is a client's connection together with its connection to the server. Two goroutines
// carry messages, one in each direction.
type conn struct {
	proxy  *Proxy
	client net.Conn
	ctx    context.Context // ends with abort
	cancel context.CancelFunc
	silent atomic.Bool // drop everything

	writing sync.Mutex // one message at a time to the client

	mu         sync.Mutex // protects what follows; never held across I/O that can block
	server     net.Conn
	clientGone bool
	pending    map[int32]*exchange // by the request ID that the reply will name
	late       int                 // how many of them are late
}

// An exchange is a command that is tracked until its reply.
type exchange struct {
	conn    *conn
	name    string
	command bson.Raw // the whole command as the client sent it; nil if malformed or not asked for
	hello   bool
	late    bool // wait for the reply even if the client is gone
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
	server, err := (&net.Dialer{}).DialContext(c.ctx, "tcp", c.proxy.target)
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
		if buf, err = wire.Read(r, buf); err != nil {
			return
		}
		if c.silent.Load() {
			continue
		}
		m, err := wire.Parse(buf)
		if err != nil || m.Body == nil {
			m = &wire.Message{Raw: buf} // the server decides
		} else if m = c.command(m); m == nil {
			if c.ctx.Err() != nil {
				return
			}
			continue
		}
		if _, err := server.Write(m.Raw); err != nil {
			return
		}
	}
}

// command returns what to send to the server in place of m, if anything.
func (c *conn) command(m *wire.Message) *wire.Message {
	x := c.proxy.match(c, m)
	var o outcome
	if x != nil {
		m, o = x.run(m, func(a Action) step { return a.command })
	}
	switch o {
	case forward:
		// Rules see the client's times, so the shift comes after them.
		if !clockShift(-c.proxy.shift.Load()).apply(m) {
			c.abort(true)
			return nil
		}
		if x != nil && m.Flags&wire.FlagMoreToCome == 0 {
			c.expect(m.RequestID, x)
		}
		return m
	case respond:
		c.respond(m)
	default:
		c.end(o)
	}
	return nil
}

// downstream carries replies until the server is done, or no client waits for one.
func (c *conn) downstream(server net.Conn) {
	defer c.abort(false)
	var (
		r   = bufio.NewReader(server)
		buf []byte
		err error
	)
	for {
		if buf, err = wire.Read(r, buf); err != nil {
			return
		}
		m, err := wire.Parse(buf)
		if err != nil || m.Body == nil {
			m = &wire.Message{Raw: buf}
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

// reply returns what to send to the client in place of m, if anything.
func (c *conn) reply(m *wire.Message) *wire.Message {
	x := c.answered(m)
	if x != nil {
		for _, a := range x.acts {
			a.rule.applied.open()
		}
	}
	if c.silent.Load() {
		return nil
	}
	if !clockShift(c.proxy.shift.Load()).apply(m) {
		c.abort(true)
		return nil
	}
	if x == nil {
		return m
	}
	if x.hello {
		m = c.proxy.readdressed(m)
	}
	m, o := x.run(m, func(a Action) step { return a.reply })
	if o != forward {
		c.end(o)
		return nil
	}
	return m
}

// run applies the actions to m until one of them ends the exchange.
func (x *exchange) run(m *wire.Message, part func(Action) step) (*wire.Message, outcome) {
	for _, a := range x.acts {
		do := part(a.Action)
		if do == nil {
			continue
		}
		a.rule.fired.open()
		var o outcome
		if m, o = do(x, a.rule, m); o != forward {
			return m, o
		}
	}
	return m, forward
}

func (c *conn) end(o outcome) {
	switch o {
	case silence:
		c.silent.Store(true)
	case hangUp:
		c.abort(false)
	default:
		c.abort(true)
	}
}

func (c *conn) respond(m *wire.Message) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.client.Write(m.Raw); err != nil {
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

// answered returns the exchange that m is a reply to, or nil if it is not tracked. After a
// reply with more to come, the next one names that reply as its request.
func (c *conn) answered(m *wire.Message) *exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.pending[m.ResponseTo]
	if x == nil {
		return nil
	}
	delete(c.pending, m.ResponseTo)
	if m.Flags&wire.FlagMoreToCome != 0 {
		c.pending[m.RequestID] = x
	} else if x.late {
		c.late--
	}
	return x
}

// leave is called when the client is gone. The server's side is closed too, unless a rule waits
// for the end of a command.
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

// abort closes both sides now, by RST if hard.
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
