package faultproxy

import (
	"bytes"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Bytes of any kind are parsed or refused, never with a panic; and what is put
// together again from the parts means the same.
func FuzzAMessageIsParsedOrRefused(f *testing.F) {
	hello, err := bson.Marshal(bson.D{{Key: "hello", Value: 1}, {Key: "$db", Value: "admin"}, {Key: "at", Value: bson.DateTime(1)}})
	if err != nil {
		f.Fatal(err)
	}
	request := func(opCode int32, parts ...[]byte) []byte {
		raw := make([]byte, headerLen)
		order.PutUint32(raw[12:], uint32(opCode))
		for _, p := range parts {
			raw = append(raw, p...)
		}
		order.PutUint32(raw, uint32(len(raw)))
		return raw
	}
	f.Add(request(opMsg, []byte{0, 0, 0, 0, 0}, hello))
	f.Add(request(opMsg, []byte{0, 0, 0, 0, 0}, hello, []byte{1, byte(4 + 2 + len(hello)), 0, 0, 0, 'd', 0}, hello))
	f.Add(request(opMsg, []byte{1, 0, 0, 0, 0}, hello, []byte{0, 0, 0, 0}))
	f.Add(request(opQuery, []byte("\x00\x00\x00\x00admin.$cmd\x00\x00\x00\x00\x00\x01\x00\x00\x00"), hello))
	f.Add(request(opReply, make([]byte, 20), hello))
	f.Add([]byte{16, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if read, err := readMessage(bytes.NewReader(raw), nil); err == nil && !bytes.Equal(read, raw[:len(read)]) {
			t.Fatal("read other bytes than there were")
		}
		m, err := parseMessage(raw)
		if err != nil {
			return
		}
		_ = m.command()
		shift := clockShift{dates: time.Hour, timestamps: time.Hour}
		if m.body == nil {
			return
		}
		doc, err := m.document()
		if err != nil {
			return
		}
		again := m.withBody(append(bson.Raw{}, m.body...))
		if other, err := again.document(); err != nil || !bytes.Equal(doc, other) {
			t.Fatalf("put together again it is another: %v", err)
		}
		if there := again; shift.apply(there) {
			shift.back().apply(there)
			if other, err := there.document(); err != nil || !bytes.Equal(doc, other) {
				t.Fatalf("shifted there and back it is another: %v", err)
			}
		}
	})
}
