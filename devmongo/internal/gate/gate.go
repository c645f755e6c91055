// Package gate stands in front of FerretDB v1, and makes it do one thing at a time.
//
// A Gate is a proxy for the MongoDB wire protocol. It passes one command at a time, over all its
// connections, and the next one only after the server has answered. So a server that finds a document
// first and updates it afterwards, as FerretDB does, behaves as if its updates were atomic: no other
// write comes in between.
//
// One kind of command bypasses the gate, because it waits by design and writes nothing: the hello of a
// driver's monitor, which waits for the topology to change.
//
// A few commands that FerretDB does not understand are put in other words on the way.
package gate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
)

// A Gate is a proxy in front of one server.
type Gate struct {
	listener net.Listener
	server   string
	log      *slog.Logger

	turn chan struct{} // holds one element while a command is under way; waiters are served in order

	translator translator

	ctx    context.Context // ends with the gate
	cancel context.CancelFunc
	conns  sync.WaitGroup // of the goroutine that accepts connections and of one for each of them
}

// Listen opens a gate at addr in front of a server. Both addresses are host:port.
func Listen(addr, server string, log *slog.Logger) (*Gate, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	g := &Gate{listener: l, server: server, log: log, turn: make(chan struct{}, 1)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.conns.Go(g.accept)
	return g, nil
}

// Addr returns the address of the gate for clients.
func (g *Gate) Addr() string { return g.listener.Addr().String() }

// Close ends the gate and all its connections, and waits for them.
func (g *Gate) Close() error {
	g.cancel()
	err := g.listener.Close()
	g.conns.Wait()
	return err
}

func (g *Gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			if g.ctx.Err() == nil {
				g.log.Error("devmongo: the gate cannot accept connections any more", "error", err)
			}
			return
		}
		g.conns.Go(func() {
			if err := g.serve(client); err != nil && g.ctx.Err() == nil {
				g.log.Debug("devmongo: the gate closed a connection", "error", err)
			}
		})
	}
}

// serve passes the messages of one client and their answers. A driver sends no second command on a
// connection before the first one was answered.
func (g *Gate) serve(client net.Conn) error {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(g.ctx, "tcp", g.server)
	if err != nil {
		return err
	}
	defer server.Close()
	defer context.AfterFunc(g.ctx, func() {
		client.Close()
		server.Close()
	})()
	for {
		request, err := readMessage(client)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading from the client: %w", err)
		}
		answers, err := g.pass(server, request)
		if err != nil {
			return fmt.Errorf("talking to the server: %w", err)
		}
		if _, err := client.Write(answers); err != nil {
			return fmt.Errorf("writing to the client: %w", err)
		}
	}
}

// pass sends one message to the server and returns the answer for the client. It ends the turn only after
// the answer was read, even if the client has gone, because until then the server may still be working.
// It ends the turn before the answer goes to the client, which may be slow.
func (g *Gate) pass(server net.Conn, request message) (message, error) {
	silent := request.expectNoAnswer()
	request, answer := g.translator.translate(request)
	if answer != nil && silent {
		return nil, nil
	} else if answer != nil {
		return answer, nil
	}
	if !request.waitsByDesign() {
		select {
		case g.turn <- struct{}{}:
			defer func() { <-g.turn }()
		case <-g.ctx.Done():
			return nil, g.ctx.Err()
		}
	}
	if _, err := server.Write(request); err != nil {
		return nil, err
	}
	answer, err := readMessage(server)
	if err != nil || silent {
		return nil, err
	}
	return answer, nil
}

// A message is one message of the wire protocol: a header of four little-endian int32 (length, request,
// response to, kind) and a body.
type message []byte

const (
	headerSize = 16
	// maxSize is MongoDB's limit, and some room for the parts around the documents.
	maxSize = 48_000_000 + 16<<10

	opQuery = 2004 // only in a connection's first hello
	opMsg   = 2013

	flagChecksum    = 1 << 0
	flagMoreToCome  = 1 << 1  // the sender does not wait for an answer
	flagExhaustable = 1 << 16 // the client accepts several answers to one command
)

func readMessage(r io.Reader) (message, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(header[:])
	if size < headerSize || size > maxSize {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	m := make(message, size)
	copy(m, header[:])
	if _, err := io.ReadFull(r, m[headerSize:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return m, nil
}

func (m message) kind() uint32 { return binary.LittleEndian.Uint32(m[12:]) }

// flags returns the flag bits of an OP_MSG, to be read or changed in place. For other messages ok is
// false.
func (m message) flags() (bits []byte, ok bool) {
	if m.kind() != opMsg || len(m) < headerSize+4 {
		return nil, false
	}
	return m[headerSize : headerSize+4], true
}

// expectNoAnswer reports whether the client expects no answer, as with a write concern of zero. It
// changes the message so that the server answers, because the gate cannot know otherwise when the
// command is done. It also clears the flag that allows several answers, which the gate could not tell
// from one.
func (m message) expectNoAnswer() bool {
	bits, ok := m.flags()
	if !ok {
		return false
	}
	set := binary.LittleEndian.Uint32(bits)
	if set&flagChecksum != 0 {
		return false // a message with a checksum cannot be changed; no driver sends one
	}
	binary.LittleEndian.PutUint32(bits, set&^(flagMoreToCome|flagExhaustable))
	return set&flagMoreToCome != 0
}

// waitsByDesign reports whether the command bypasses the gate.
func (m message) waitsByDesign() bool {
	switch m.command() {
	case "hello", "isMaster", "ismaster":
		return true
	}
	return false
}

// command returns the name of the command in the message, or an empty string if the gate cannot read it.
// Such a message, a compressed one for example, waits its turn like any other.
func (m message) command() string {
	const documentSize, elementKind = 4, 1
	body := m[headerSize:]
	switch m.kind() {
	case opMsg:
		// Flags, then sections. Every driver puts the section with the command (kind 0) first. If a
		// sequence of documents (kind 1) comes first the message is a write, which takes its turn.
		if len(body) < 5 || body[4] != 0 {
			return ""
		}
		body = body[5:]
	case opQuery:
		// Flags, the collection's name with its terminator, the numbers to skip and to return.
		if len(body) < 4 {
			return ""
		}
		_, rest, ok := cutCString(body[4:])
		if !ok || len(rest) < 8 {
			return ""
		}
		body = rest[8:]
	default:
		return ""
	}
	// The command's name is the key of its first element.
	if len(body) < documentSize+elementKind {
		return ""
	}
	name, _, _ := cutCString(body[documentSize+elementKind:])
	return name
}

func cutCString(b []byte) (s string, rest []byte, ok bool) {
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), b[i+1:], true
		}
	}
	return "", nil, false
}
