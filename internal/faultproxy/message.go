package faultproxy

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

const (
	headerLen  = 16
	maxMessage = 64 << 20 // servers announce 48,000,000
	readStep   = 64 << 10 // how much memory a length may claim before its bytes are there

	opReply = 1
	opQuery = 2004
	opMsg   = 2013

	flagChecksum       = 1 << 0
	flagMoreToCome     = 1 << 1
	flagExhaustAllowed = 1 << 16
)

var (
	errMalformed = errors.New("faultproxy: malformed message")
	castagnoli   = crc32.MakeTable(crc32.Castagnoli)
	order        = binary.LittleEndian
)

// A message is one message of the wire protocol. Its slices alias raw.
type message struct {
	raw        []byte // all of it, header included
	requestID  int32
	responseTo int32
	opCode     int32
	flags      uint32 // of OP_MSG

	head      []byte // OP_QUERY, OP_REPLY: the bytes between header and body
	body      bson.Raw
	sequences []sequence // OP_MSG: documents that travel beside the body
}

// A sequence is a field of a command whose documents travel beside the body.
type sequence struct {
	name string
	docs []byte // end to end, not looked into
}

// readMessage reads the bytes of one message into buf, and grows it as bytes arrive: a wrong
// length costs no memory.
func readMessage(r io.Reader, buf []byte) ([]byte, error) {
	buf = append(buf[:0], make([]byte, headerLen)...)
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	length := int(int32(order.Uint32(buf)))
	if length < headerLen || length > maxMessage {
		return nil, fmt.Errorf("%w: length %d", errMalformed, length)
	}
	for have := headerLen; have < length; have = len(buf) {
		step := min(length-have, max(readStep, have))
		buf = append(buf, make([]byte, step)...)
		if _, err := io.ReadFull(r, buf[have:]); err != nil {
			return nil, fmt.Errorf("faultproxy: message cut short: %w", err)
		}
	}
	return buf, nil
}

// parseMessage parses raw. A message of another kind is returned without a body, and without
// an error.
func parseMessage(raw []byte) (*message, error) {
	if len(raw) < headerLen || int(int32(order.Uint32(raw))) != len(raw) {
		return nil, errMalformed
	}
	m := &message{
		raw:        raw,
		requestID:  int32(order.Uint32(raw[4:])),
		responseTo: int32(order.Uint32(raw[8:])),
		opCode:     int32(order.Uint32(raw[12:])),
	}
	var err error
	switch rest := raw[headerLen:]; m.opCode {
	case opMsg:
		err = m.parseMsg(rest)
	case opQuery: // flags, collection, skip, limit, query
		if len(rest) < 4 {
			return nil, errMalformed
		}
		name := bytes.IndexByte(rest[4:], 0)
		if name < 0 {
			return nil, errMalformed
		}
		err = m.parseLegacy(rest, 4+name+1+8)
	case opReply: // flags, cursor, start, count, documents
		err = m.parseLegacy(rest, 20)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (m *message) parseLegacy(rest []byte, headLen int) error {
	if len(rest) < headLen {
		return errMalformed
	}
	m.head = rest[:headLen]
	body, after, ok := cutDocument(rest[headLen:])
	if !ok || m.opCode == opReply && len(after) > 0 {
		return errMalformed
	}
	m.body = body // a projection after a query is dropped: no handshake has one
	return nil
}

func (m *message) parseMsg(rest []byte) error {
	if len(rest) < 4 {
		return errMalformed
	}
	m.flags = order.Uint32(rest)
	rest = rest[4:]
	if m.flags&flagChecksum != 0 {
		if len(rest) < 4 {
			return errMalformed
		}
		rest = rest[:len(rest)-4]
	}
	for len(rest) > 0 {
		kind := rest[0]
		rest = rest[1:]
		switch kind {
		case 0:
			body, after, ok := cutDocument(rest)
			if !ok || m.body != nil {
				return errMalformed
			}
			m.body, rest = body, after
		case 1:
			section, after, ok := cutSized(rest, 4)
			if !ok {
				return errMalformed
			}
			name, docs, ok := bytes.Cut(section[4:], []byte{0})
			if !ok {
				return errMalformed
			}
			m.sequences = append(m.sequences, sequence{string(name), docs})
			rest = after
		default:
			return fmt.Errorf("%w: section of kind %d", errMalformed, kind)
		}
	}
	if m.body == nil {
		return fmt.Errorf("%w: no body", errMalformed)
	}
	return nil
}

// cutDocument splits off the document that b begins with. It checks only the document's frame,
// not its content.
func cutDocument(b []byte) (doc bson.Raw, rest []byte, ok bool) {
	d, rest, ok := cutSized(b, 5)
	if !ok || d[len(d)-1] != 0 {
		return nil, nil, false
	}
	return bson.Raw(d), rest, true
}

// cutSized splits off the part that begins with its own length, four bytes. The length counts
// itself and is not below least.
func cutSized(b []byte, least int) (part, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := int(int32(order.Uint32(b)))
	if n < least || n > len(b) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

// command returns the name of m's command, or "" if there is none.
func (m *message) command() string {
	// A type byte, the name, the value. The value may be malformed, so it is not parsed.
	if len(m.body) < 7 || m.body[4] == 0 {
		return ""
	}
	name, _, ok := bytes.Cut(m.body[5:], []byte{0})
	if !ok {
		return ""
	}
	return string(name)
}

// document returns the command or reply as one document, with sequences as arrays, as a server
// reads it. The document shares no memory with m.
func (m *message) document() (bson.Raw, error) {
	if m.body == nil {
		return nil, errMalformed
	}
	if err := m.body.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	doc := append([]byte(nil), m.body[:len(m.body)-1]...)
	for _, s := range m.sequences {
		doc = append(doc, byte(bson.TypeArray))
		doc = append(doc, s.name...)
		doc = append(doc, 0)
		start := len(doc)
		doc = append(doc, 0, 0, 0, 0)
		for i, rest := 0, s.docs; len(rest) > 0; i++ {
			one, after, ok := cutDocument(rest)
			if !ok || one.Validate() != nil {
				return nil, errMalformed
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

// withBody returns m with another body.
func (m *message) withBody(body bson.Raw) *message {
	raw := make([]byte, headerLen, len(m.raw)-len(m.body)+len(body))
	copy(raw, m.raw[:headerLen])
	if m.opCode == opMsg {
		raw = order.AppendUint32(raw, m.flags)
		raw = append(raw, 0)
		raw = append(raw, body...)
		for _, s := range m.sequences {
			raw = append(raw, 1)
			raw = order.AppendUint32(raw, uint32(4+len(s.name)+1+len(s.docs)))
			raw = append(raw, s.name...)
			raw = append(raw, 0)
			raw = append(raw, s.docs...)
		}
		if m.flags&flagChecksum != 0 {
			raw = append(raw, 0, 0, 0, 0)
		}
	} else {
		raw = append(raw, m.head...)
		raw = append(raw, body...)
	}
	order.PutUint32(raw, uint32(len(raw)))
	return reparsed(raw)
}

// answer returns a reply to the request m, in the format that m's sender expects.
func (m *message) answer(id int32, body bson.Raw) *message {
	raw := make([]byte, headerLen, headerLen+20+len(body))
	order.PutUint32(raw[4:], uint32(id))
	order.PutUint32(raw[8:], uint32(m.requestID))
	if m.opCode == opQuery {
		order.PutUint32(raw[12:], opReply)
		raw = append(raw, make([]byte, 16)...)
		raw = order.AppendUint32(raw, 1)
	} else {
		order.PutUint32(raw[12:], opMsg)
		raw = append(raw, 0, 0, 0, 0, 0)
	}
	raw = append(raw, body...)
	order.PutUint32(raw, uint32(len(raw)))
	return reparsed(raw)
}

// reparsed parses a message that this package has built itself.
func reparsed(raw []byte) *message {
	m, err := parseMessage(raw)
	if err != nil {
		panic("faultproxy: built a bad message: " + err.Error())
	}
	m.seal()
	return m
}

// seal updates the checksum after m was changed.
func (m *message) seal() {
	if m.opCode == opMsg && m.flags&flagChecksum != 0 {
		end := len(m.raw) - 4
		order.PutUint32(m.raw[end:], crc32.Checksum(m.raw[:end], castagnoli))
	}
}
