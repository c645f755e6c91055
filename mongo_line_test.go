package mongolock

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A mongoLine stands between the driver and the server, in the process: it decides
// what becomes of each command and its reply.
type mongoLine struct {
	mu    sync.Mutex // protects the rest
	fate  func(command string, c bson.Raw) mongoFate
	stuck []mongoStuck
}

// A mongoFate is what becomes of a command. The zero fate is to be passed on.
type mongoFate struct {
	before  func()                // runs before it is passed on
	stall   bool                  // not passed on until deliver; the driver sees the connection break
	lose    bool                  // applied, but the connection breaks in the place of the reply
	instead bson.D                // answered with this and not passed on
	rewrite func(bson.Raw) bson.D // its reply
}

// A mongoStuck is a command in a socket whose other end was given up.
type mongoStuck struct {
	server net.Conn
	wire   []byte
}

func (l *mongoLine) set(fate func(command string, c bson.Raw) mongoFate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fate = fate
}

func (l *mongoLine) decide(c bson.Raw) mongoFate {
	l.mu.Lock()
	fate := l.fate
	l.mu.Unlock()
	if fate == nil {
		return mongoFate{}
	}
	first, err := c.IndexErr(0)
	if err != nil {
		return mongoFate{}
	}
	return fate(first.Key(), c)
}

// deliver passes on what was stalled, and answers what the server says to it.
func (l *mongoLine) deliver(t testing.TB) []bson.Raw {
	l.mu.Lock()
	stuck := l.stuck
	l.stuck = nil
	l.mu.Unlock()
	var replies []bson.Raw
	for _, s := range stuck {
		_ = s.server.SetDeadline(time.Now().Add(5 * time.Second)) // not the driver's any more
		if _, err := s.server.Write(s.wire); err != nil {
			t.Fatal(err)
		}
		reply, err := readMessage(s.server)
		if err != nil {
			t.Fatal(err)
		}
		replies = append(replies, bson.Raw(reply[messageBody:]))
		_ = s.server.Close()
	}
	return replies
}

// through connects a client over the line.
func (l *mongoLine) through(o *options.ClientOptions) { o.SetDialer(l) }

func (l *mongoLine) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &mongoConn{Conn: c, line: l}, nil
}

// A mongoConn is one connection of the line. The driver sends one message with one
// Write, and then reads one.
type mongoConn struct {
	net.Conn
	line    *mongoLine
	pending []byte // of the reply being read
	next    mongoFate
	request []byte
	broken  bool
	handed  bool // the socket is kept for a stalled command
}

const (
	opMsg       = 2013
	messageBody = 16 + 4 + 1 // header, flags, the kind of the first section
)

func (c *mongoConn) Write(p []byte) (int, error) {
	c.next, c.request = mongoFate{}, nil
	if len(p) > messageBody && binary.LittleEndian.Uint32(p[12:]) == opMsg {
		size := binary.LittleEndian.Uint32(p[messageBody:])
		c.next = c.line.decide(bson.Raw(p[messageBody : messageBody+int(size)]))
		c.request = append([]byte(nil), p...)
	}
	if c.next.before != nil {
		c.next.before()
	}
	switch {
	case c.next.stall:
		c.line.mu.Lock()
		c.line.stuck = append(c.line.stuck, mongoStuck{c.Conn, c.request})
		c.line.mu.Unlock()
		c.broken, c.handed = true, true
		return len(p), nil
	case c.next.instead != nil:
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *mongoConn) Read(p []byte) (int, error) {
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

func (c *mongoConn) fill() error {
	fate := c.next
	if fate.instead != nil {
		c.pending = answerTo(c.request, fate.instead)
		return nil
	}
	reply, err := readMessage(c.Conn)
	if err != nil {
		return err
	}
	if fate.lose {
		c.broken = true
		return io.ErrUnexpectedEOF
	}
	if fate.rewrite != nil {
		reply = answerTo(c.request, fate.rewrite(bson.Raw(reply[messageBody:])))
	}
	c.pending = reply
	return nil
}

func (c *mongoConn) Close() error {
	if c.handed {
		return nil
	}
	return c.Conn.Close()
}

func readMessage(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.LittleEndian.Uint32(head[:]))
	copy(message, head[:])
	_, err := io.ReadFull(r, message[4:])
	return message, err
}

func answerTo(request []byte, reply bson.D) []byte {
	body, err := bson.Marshal(reply)
	if err != nil {
		panic(err)
	}
	message := make([]byte, messageBody, messageBody+len(body))
	binary.LittleEndian.PutUint32(message, uint32(messageBody+len(body)))
	copy(message[8:12], request[4:8]) // responseTo
	binary.LittleEndian.PutUint32(message[12:], opMsg)
	return append(message, body...)
}

// edit answers a document without some fields and with others at its end.
func edit(raw bson.Raw, without []string, with ...bson.E) bson.D {
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
