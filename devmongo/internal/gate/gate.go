// Package gate makes a server do one thing at a time.
//
// A Gate is a proxy for the MongoDB wire protocol. Of all the commands on all its connections it
// lets one through, and the next only when the server has answered. So a server that looks first
// and writes afterwards, as FerretDB v1 does with a filtered update, behaves like one that is
// atomic: nobody else writes in between.
//
// Two sorts of commands go past the gate, since they wait by design and write nothing: getMore,
// which on a tailable cursor waits for data that somebody else must be able to insert, and the hello
// of a driver's monitor, which waits for the topology to change.
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

// Gate is a proxy in front of one server.
type Gate struct {
	listener net.Listener
	server   string
	log      *slog.Logger

	turn chan struct{} // holds one element while a command is under way; waiters go in order

	ctx    context.Context // ends with the gate
	cancel context.CancelFunc
	conns  sync.WaitGroup // one goroutine for accepting and one for each connection
}

// Listen opens a gate at addr in front of the server, a host:port as well.
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

// Addr is where clients find the gate.
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
				g.log.Error("devmongo: the gate takes no more connections", "error", err)
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

// serve passes one client's messages, each with its answer: on one connection drivers never send a
// second command before the first one's answer is there.
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

// pass sends one message to the server and returns what there is to say to the client. It gives the
// turn back only after the answer was read, though the client may long be gone: until then the
// server may still be at it. And it gives it back before the client reads, who may be slow.
func (g *Gate) pass(server net.Conn, request message) (message, error) {
	silent := request.expectNoAnswer()
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

// message is one message of the wire protocol: a header of four little-endian int32 (length,
// request, response to, kind) and its body.
type message []byte

const (
	headerSize = 16
	// maxSize is what MongoDB allows, and some for the parts around the documents.
	maxSize = 48_000_000 + 16<<10

	opQuery = 2004 // only in a connection's first hello
	opMsg   = 2013

	flagChecksum    = 1 << 0
	flagMoreToCome  = 1 << 1  // the sender sends on without waiting for an answer
	flagExhaustable = 1 << 16 // the client would take several answers to one command
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

// flags are the flag bits of an OP_MSG, and false for any other message. Whoever asks may set them
// in place.
func (m message) flags() (bits []byte, ok bool) {
	if m.kind() != opMsg || len(m) < headerSize+4 {
		return nil, false
	}
	return m[headerSize : headerSize+4], true
}

// expectNoAnswer reports whether the client does not wait for an answer, as with a write concern of
// zero, and makes the message ask for one: the gate has no other way to know when it is done. It
// also takes away the leave to answer several times, which the gate could not tell from one.
func (m message) expectNoAnswer() bool {
	bits, ok := m.flags()
	if !ok {
		return false
	}
	set := binary.LittleEndian.Uint32(bits)
	if set&flagChecksum != 0 {
		return false // not to be changed; no driver sends one
	}
	binary.LittleEndian.PutUint32(bits, set&^(flagMoreToCome|flagExhaustable))
	return set&flagMoreToCome != 0
}

// waitsByDesign reports whether the command goes past the gate.
func (m message) waitsByDesign() bool {
	switch m.command() {
	case "getMore", "hello", "isMaster", "ismaster":
		return true
	}
	return false
}

// command is the name of the command in the message, or empty if it is none the gate can read: such
// a one, compressed for example, waits its turn like any other.
func (m message) command() string {
	const documentSize, elementKind = 4, 1
	body := m[headerSize:]
	switch m.kind() {
	case opMsg:
		// Flags, then sections. That with the command (0) is the first in every driver; one with
		// a sequence of documents (1) in front of it belongs to a write, which takes its turn.
		if len(body) < 5 || body[4] != 0 {
			return ""
		}
		body = body[5:]
	case opQuery:
		// Flags, the collection's name and its end, how many to skip and to return.
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
