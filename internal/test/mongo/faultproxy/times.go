package faultproxy

import (
	"bytes"
	"encoding/binary"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/wire"
)

var order = binary.LittleEndian

// maxDepth of nested documents is more than any server accepts.
const maxDepth = 250

// A clockShift is how much to add to the dates in a message.
type clockShift time.Duration

// apply shifts every date in m, in place. Sums wrap around, so that the opposite shift undoes it
// even at the ends of the range. It reports whether m was well-formed.
func (s clockShift) apply(m *wire.Message) bool {
	if s == 0 || m.Body == nil {
		return true
	}
	if !s.document(m.Body, 0) {
		return false
	}
	for _, q := range m.Sequences {
		for rest := q.Docs; len(rest) > 0; {
			doc, after, ok := wire.CutDocument(rest)
			if !ok || !s.document(doc, 0) {
				return false
			}
			rest = after
		}
	}
	m.Seal()
	return true
}

// document shifts the values in doc. It reports whether doc was well-formed, as far as it
// looked.
func (s clockShift) document(doc []byte, depth int) bool {
	if depth > maxDepth {
		return false
	}
	rest := doc[4 : len(doc)-1]
	for len(rest) > 0 {
		kind := bson.Type(rest[0])
		end := bytes.IndexByte(rest, 0)
		if end < 1 {
			return false
		}
		value := rest[end+1:]
		n, ok := valueLen(kind, value)
		if !ok {
			return false
		}
		switch kind {
		case bson.TypeDateTime:
			order.PutUint64(value, order.Uint64(value)+uint64(time.Duration(s).Milliseconds()))
		case bson.TypeEmbeddedDocument, bson.TypeArray:
			if !s.document(value[:n], depth+1) {
				return false
			}
		case bson.TypeCodeWithScope: // length, string, document
			if !s.scope(value[:n], depth) {
				return false
			}
		}
		rest = value[n:]
	}
	return true
}

func (s clockShift) scope(value []byte, depth int) bool {
	if len(value) < 8 {
		return false
	}
	code := int(int32(order.Uint32(value[4:])))
	if code < 1 || code > len(value)-8 {
		return false
	}
	doc, rest, ok := wire.CutDocument(value[8+code:])
	return ok && len(rest) == 0 && s.document(doc, depth+1)
}

// valueLen returns how many bytes at the start of b are a value of that kind.
func valueLen(kind bson.Type, b []byte) (n int, ok bool) {
	switch kind {
	case bson.TypeUndefined, bson.TypeNull, bson.TypeMinKey, bson.TypeMaxKey:
		n = 0
	case bson.TypeBoolean:
		n = 1
	case bson.TypeInt32:
		n = 4
	case bson.TypeDouble, bson.TypeDateTime, bson.TypeTimestamp, bson.TypeInt64:
		n = 8
	case bson.TypeObjectID:
		n = 12
	case bson.TypeDecimal128:
		n = 16
	case bson.TypeString, bson.TypeJavaScript, bson.TypeSymbol:
		return counted(b, 4)
	case bson.TypeBinary:
		return counted(b, 5)
	case bson.TypeDBPointer:
		return counted(b, 4+12)
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		doc, _, ok := wire.CutDocument(b)
		return len(doc), ok
	case bson.TypeCodeWithScope:
		part, _, ok := wire.CutSized(b, 4)
		return len(part), ok
	case bson.TypeRegex:
		for range 2 {
			end := bytes.IndexByte(b[n:], 0)
			if end < 0 {
				return 0, false
			}
			n += end + 1
		}
	default:
		return 0, false
	}
	return n, n <= len(b)
}

// counted returns the length of a value that begins with the length of its content and has
// extra bytes besides.
func counted(b []byte, extra int) (int, bool) {
	if len(b) < 4 {
		return 0, false
	}
	n := int(int32(order.Uint32(b)))
	if n < 0 || n > len(b)-extra {
		return 0, false
	}
	return n + extra, true
}
