package testserver

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/test/mongo/wire"
)

// A Line is a connection between the driver and the server that decides what becomes of each
// command and its reply. It works inside the process; package faultproxy is a real proxy.
type Line struct {
	mu    sync.Mutex // protects the rest
	fate  func(command string, c bson.Raw) Fate
	stuck []stuckCommand
}

// A Fate is what becomes of a command. The zero Fate passes it on.
type Fate struct {
	Before  func()                // runs before the command is passed on
	Stall   bool                  // not passed on until Deliver; the driver sees the connection break
	Lose    bool                  // applied, but the connection breaks in place of the reply
	Instead bson.D                // answers the command, which is not passed on
	Rewrite func(bson.Raw) bson.D // changes the reply
}

// A stuckCommand is a command in a socket that the driver has given up.
type stuckCommand struct {
	server  net.Conn
	command *wire.Message
}

// Set sets the function that decides what becomes of each command from now on.
func (l *Line) Set(fate func(command string, c bson.Raw) Fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fate = fate
}

// Also sets a function that decides first. Commands that it leaves undecided are decided as
// before.
func (l *Line) Also(first func(command string, c bson.Raw) (fate Fate, decided bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.fate
	l.fate = func(command string, c bson.Raw) Fate {
		if fate, decided := first(command, c); decided || before == nil {
			return fate
		}
		return before(command, c)
	}
}

func (l *Line) decide(c bson.Raw) Fate {
	l.mu.Lock()
	fate := l.fate
	l.mu.Unlock()
	if fate == nil {
		return Fate{}
	}
	first, err := c.IndexErr(0)
	if err != nil {
		return Fate{}
	}
	return fate(first.Key(), c)
}

// Deliver passes the stalled commands on, and returns the server's replies.
func (l *Line) Deliver(t testing.TB) []bson.Raw {
	l.mu.Lock()
	stuck := l.stuck
	l.stuck = nil
	l.mu.Unlock()
	var replies []bson.Raw
	for _, s := range stuck {
		_ = s.server.SetDeadline(time.Now().Add(5 * time.Second)) // in place of the driver's
		if _, err := s.server.Write(s.command.Raw); err != nil {
			t.Fatal(err)
		}
		reply, err := receive(s.server)
		if err != nil {
			t.Fatal(err)
		}
		replies = append(replies, reply.Body)
		_ = s.server.Close()
	}
	return replies
}

// Through connects a client over the line.
func (l *Line) Through(o *options.ClientOptions) { o.SetDialer(l) }

// DialContext makes a Line the dialer of a client.
func (l *Line) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &lineConn{Conn: c, line: l}, nil
}

// A lineConn is one connection of a Line. The driver sends a message with one Write and then
// reads one.
type lineConn struct {
	net.Conn
	line    *Line
	pending []byte // of the reply being read
	next    Fate
	request *wire.Message
	broken  bool
	handed  bool // the socket is kept for a stalled command
}

func (c *lineConn) Write(p []byte) (int, error) {
	c.next, c.request = Fate{}, nil
	if m, err := wire.Parse(bytes.Clone(p)); err == nil && m.OpCode == wire.OpMsg {
		c.next, c.request = c.line.decide(m.Body), m
	}
	if c.next.Before != nil {
		c.next.Before()
	}
	switch {
	case c.next.Stall:
		c.line.mu.Lock()
		c.line.stuck = append(c.line.stuck, stuckCommand{c.Conn, c.request})
		c.line.mu.Unlock()
		c.broken, c.handed = true, true
		return len(p), nil
	case c.next.Instead != nil:
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *lineConn) Read(p []byte) (int, error) {
	if c.broken {
		return 0, io.ErrUnexpectedEOF
	}
	if len(c.pending) == 0 {
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.pending)
	c.pending = c.pending[n:]
	return n, nil
}

func (c *lineConn) fill() error {
	fate := c.next
	if fate.Instead != nil {
		return c.answer(fate.Instead)
	}
	reply, err := receive(c.Conn)
	if err != nil {
		return err
	}
	if fate.Lose {
		c.broken = true
		return io.ErrUnexpectedEOF
	}
	if fate.Rewrite != nil {
		return c.answer(fate.Rewrite(reply.Body))
	}
	c.pending = reply.Raw
	return nil
}

// answer has the driver read a reply to its command.
func (c *lineConn) answer(reply bson.D) error {
	body, err := bson.Marshal(reply)
	if err != nil {
		panic(err)
	}
	c.pending = c.request.Answer(1, body).Raw
	return nil
}

func receive(from io.Reader) (*wire.Message, error) {
	raw, err := wire.Read(from, nil)
	if err != nil {
		return nil, err
	}
	return wire.Parse(raw)
}

func (c *lineConn) Close() error {
	if c.handed {
		return nil
	}
	return c.Conn.Close()
}

// Edit returns a document without some fields, and with others at its end.
func Edit(raw bson.Raw, without []string, with ...bson.E) bson.D {
	var d bson.D
	elements, _ := raw.Elements()
next:
	for _, e := range elements {
		for _, w := range without {
			if e.Key() == w {
				continue next
			}
		}
		d = append(d, bson.E{Key: e.Key(), Value: e.Value()})
	}
	return append(d, with...)
}
