// Package wire reads and builds messages of MongoDB's wire protocol, for the proxies and the
// simulated servers of tests. It understands OP_MSG, and OP_QUERY with OP_REPLY as far as the
// first hello of a connection needs them.
package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The numbers of the protocol.
const (
	HeaderLen  = 16       // of every message
	MaxMessage = 64 << 20 // servers announce 48,000,000
	readStep   = 64 << 10 // how much memory a length may claim before its bytes are there

	OpReply = 1    // the reply to an OpQuery
	OpQuery = 2004 // a driver's first hello
	OpMsg   = 2013 // everything else

	FlagChecksum       = 1 << 0  // the message ends with a checksum
	FlagMoreToCome     = 1 << 1  // another message follows without a request, or no reply is expected
	FlagExhaustAllowed = 1 << 16 // the reply may have more to come
)

// ErrMalformed reports bytes that are not a message.
var ErrMalformed = errors.New("wire: malformed message")

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	order      = binary.LittleEndian
)

// A Message is one message of the wire protocol. Its slices alias Raw.
type Message struct {
	Raw        []byte // all of it, header included
	RequestID  int32
	ResponseTo int32
	OpCode     int32
	Flags      uint32 // of OP_MSG

	Body      bson.Raw
	Sequences []Sequence // OP_MSG: documents that travel beside the body

	head []byte // OP_QUERY, OP_REPLY: the bytes between header and body
}

// A Sequence is a field of a command whose documents travel beside the body.
type Sequence struct {
	Name string
	Docs []byte // end to end, not looked into
}

// Read reads the bytes of one message into buf, and grows it as bytes arrive: a wrong
// length costs no memory.
func Read(r io.Reader, buf []byte) ([]byte, error) {
	buf = append(buf[:0], make([]byte, HeaderLen)...)
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	length := int(int32(order.Uint32(buf)))
	if length < HeaderLen || length > MaxMessage {
		return nil, fmt.Errorf("%w: length %d", ErrMalformed, length)
	}
	for have := HeaderLen; have < length; have = len(buf) {
		step := min(length-have, max(readStep, have))
		buf = append(buf, make([]byte, step)...)
		if _, err := io.ReadFull(r, buf[have:]); err != nil {
			return nil, fmt.Errorf("wire: message cut short: %w", err)
		}
	}
	return buf, nil
}

// Parse parses raw. A message of another kind is returned without a body, and without
// an error.
func Parse(raw []byte) (*Message, error) {
	if len(raw) < HeaderLen || int(int32(order.Uint32(raw))) != len(raw) {
		return nil, ErrMalformed
	}
	m := &Message{
		Raw:        raw,
		RequestID:  int32(order.Uint32(raw[4:])),
		ResponseTo: int32(order.Uint32(raw[8:])),
		OpCode:     int32(order.Uint32(raw[12:])),
	}
	var err error
	switch rest := raw[HeaderLen:]; m.OpCode {
	case OpMsg:
		err = m.parseMsg(rest)
	case OpQuery: // flags, collection, skip, limit, query
		if len(rest) < 4 {
			return nil, ErrMalformed
		}
		name := bytes.IndexByte(rest[4:], 0)
		if name < 0 {
			return nil, ErrMalformed
		}
		err = m.parseLegacy(rest, 4+name+1+8)
	case OpReply: // flags, cursor, start, count, documents
		err = m.parseLegacy(rest, 20)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Message) parseLegacy(rest []byte, headLen int) error {
	if len(rest) < headLen {
		return ErrMalformed
	}
	m.head = rest[:headLen]
	body, after, ok := CutDocument(rest[headLen:])
	if !ok || m.OpCode == OpReply && len(after) > 0 {
		return ErrMalformed
	}
	m.Body = body // a projection after a query is dropped: no handshake has one
	return nil
}

func (m *Message) parseMsg(rest []byte) error {
	if len(rest) < 4 {
		return ErrMalformed
	}
	m.Flags = order.Uint32(rest)
	rest = rest[4:]
	if m.Flags&FlagChecksum != 0 {
		if len(rest) < 4 {
			return ErrMalformed
		}
		rest = rest[:len(rest)-4]
	}
	for len(rest) > 0 {
		kind := rest[0]
		rest = rest[1:]
		switch kind {
		case 0:
			body, after, ok := CutDocument(rest)
			if !ok || m.Body != nil {
				return ErrMalformed
			}
			m.Body, rest = body, after
		case 1:
			section, after, ok := CutSized(rest, 4)
			if !ok {
				return ErrMalformed
			}
			name, docs, ok := bytes.Cut(section[4:], []byte{0})
			if !ok {
				return ErrMalformed
			}
			m.Sequences = append(m.Sequences, Sequence{string(name), docs})
			rest = after
		default:
			return fmt.Errorf("%w: section of kind %d", ErrMalformed, kind)
		}
	}
	if m.Body == nil {
		return fmt.Errorf("%w: no body", ErrMalformed)
	}
	return nil
}

// CutDocument splits off the document that b begins with. It checks only the document's frame,
// not its content.
func CutDocument(b []byte) (doc bson.Raw, rest []byte, ok bool) {
	d, rest, ok := CutSized(b, 5)
	if !ok || d[len(d)-1] != 0 {
		return nil, nil, false
	}
	return bson.Raw(d), rest, true
}

// CutSized splits off the part that begins with its own length, four bytes. The length counts
// itself and is not below least.
func CutSized(b []byte, least int) (part, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := int(int32(order.Uint32(b)))
	if n < least || n > len(b) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

// Command returns the name of m's command, or "" if there is none.
func (m *Message) Command() string {
	// A type byte, the name, the value. The value may be malformed, so it is not parsed.
	if len(m.Body) < 7 || m.Body[4] == 0 {
		return ""
	}
	name, _, ok := bytes.Cut(m.Body[5:], []byte{0})
	if !ok {
		return ""
	}
	return string(name)
}

// Document returns the command or reply as one document, with sequences as arrays, as a server
// reads it. The document shares no memory with m.
func (m *Message) Document() (bson.Raw, error) {
	if m.Body == nil {
		return nil, ErrMalformed
	}
	if err := m.Body.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	doc := append([]byte(nil), m.Body[:len(m.Body)-1]...)
	for _, s := range m.Sequences {
		doc = append(doc, byte(bson.TypeArray))
		doc = append(doc, s.Name...)
		doc = append(doc, 0)
		start := len(doc)
		doc = append(doc, 0, 0, 0, 0)
		for i, rest := 0, s.Docs; len(rest) > 0; i++ {
			one, after, ok := CutDocument(rest)
			if !ok || one.Validate() != nil {
				return nil, ErrMalformed
			}
			doc = append(doc, byte(bson.TypeEmbeddedDocument))
			doc = strconv.AppendInt(doc, int64(i), 10)
			doc = append(doc, 0)
			doc = append(doc, one...)
			rest = after
		}
		doc = append(doc, 0)
		order.PutUint32(doc[start:], uint32(len(doc)-start))
	}
	doc = append(doc, 0)
	order.PutUint32(doc, uint32(len(doc)))
	return doc, nil
}
