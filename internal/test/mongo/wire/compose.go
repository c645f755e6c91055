package wire

import (
	"hash/crc32"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Compose returns an OP_MSG with a request ID, flags, a body and sequences.
func Compose(requestID int32, flags uint32, body bson.Raw, sequences ...Sequence) *Message {
	raw := make([]byte, HeaderLen, HeaderLen+4+1+len(body)+4)
	order.PutUint32(raw[4:], uint32(requestID))
	order.PutUint32(raw[12:], OpMsg)
	raw = order.AppendUint32(raw, flags)
	raw = append(raw, 0)
	raw = append(raw, body...)
	for _, s := range sequences {
		raw = append(raw, 1)
		raw = order.AppendUint32(raw, uint32(4+len(s.Name)+1+len(s.Docs)))
		raw = append(raw, s.Name...)
		raw = append(raw, 0)
		raw = append(raw, s.Docs...)
	}
	if flags&FlagChecksum != 0 {
		raw = append(raw, 0, 0, 0, 0)
	}
	order.PutUint32(raw, uint32(len(raw)))
	return reparsed(raw)
}

// WithBody returns m with another body.
func (m *Message) WithBody(body bson.Raw) *Message {
	if m.OpCode == OpMsg {
		changed := Compose(m.RequestID, m.Flags, body, m.Sequences...)
		changed.setResponseTo(m.ResponseTo)
		return changed
	}
	raw := append([]byte(nil), m.Raw[:HeaderLen]...)
	raw = append(raw, m.head...)
	raw = append(raw, body...)
	order.PutUint32(raw, uint32(len(raw)))
	return reparsed(raw)
}

// Answer returns a reply to the request m, in the format that m's sender expects.
func (m *Message) Answer(id int32, body bson.Raw) *Message {
	if m.OpCode != OpQuery {
		reply := Compose(id, 0, body)
		reply.setResponseTo(m.RequestID)
		return reply
	}
	raw := make([]byte, HeaderLen, HeaderLen+20+len(body))
	order.PutUint32(raw[4:], uint32(id))
	order.PutUint32(raw[8:], uint32(m.RequestID))
	order.PutUint32(raw[12:], OpReply)
	raw = append(raw, make([]byte, 16)...)
	raw = order.AppendUint32(raw, 1)
	raw = append(raw, body...)
	order.PutUint32(raw, uint32(len(raw)))
	return reparsed(raw)
}

// SetFlags sets the flags of an OP_MSG. Its checksum is not added or removed.
func (m *Message) SetFlags(flags uint32) {
	m.Flags = flags
	order.PutUint32(m.Raw[HeaderLen:], flags)
	m.Seal()
}

func (m *Message) setResponseTo(id int32) {
	m.ResponseTo = id
	order.PutUint32(m.Raw[8:], uint32(id))
	m.Seal()
}

// reparsed parses a message that this package has built itself.
func reparsed(raw []byte) *Message {
	m, err := Parse(raw)
	if err != nil {
		panic("wire: a bad message was built: " + err.Error())
	}
	m.Seal()
	return m
}

// Seal updates the checksum after m was changed.
func (m *Message) Seal() {
	if m.OpCode == OpMsg && m.Flags&FlagChecksum != 0 {
		end := len(m.Raw) - 4
		order.PutUint32(m.Raw[end:], crc32.Checksum(m.Raw[:end], castagnoli))
	}
}
