package faultproxy

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/wire"
)

// msg returns the bytes of an OP_MSG.
func msg(t testing.TB, flags uint32, body any, sequences ...wire.Sequence) []byte {
	t.Helper()
	return wire.Compose(7, flags, marshalAny(t, body), sequences...).Raw
}

// query returns the bytes of an OP_QUERY, as a driver's first hello is one.
func query(t testing.TB, body any) []byte {
	t.Helper()
	raw := make([]byte, wire.HeaderLen+4)
	order.PutUint32(raw[4:], 8)
	order.PutUint32(raw[12:], wire.OpQuery)
	raw = append(raw, "admin.$cmd\x00"...)
	raw = append(raw, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff)
	raw = append(raw, marshalAny(t, body)...)
	order.PutUint32(raw, uint32(len(raw)))
	return raw
}

func marshalAny(t testing.TB, v any) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(v)
	require.NoError(t, err)
	return raw
}

func insertMsg(t testing.TB, flags uint32) []byte {
	docs := slices.Concat(marshalAny(t, bson.D{{Key: "_id", Value: "a"}, {Key: "at", Value: time.UnixMilli(1000)}}),
		marshalAny(t, bson.D{{Key: "_id", Value: "b"}}))
	return msg(t, flags, bson.D{{Key: "insert", Value: "things"}, {Key: "$db", Value: "db"}}, wire.Sequence{Name: "documents", Docs: docs})
}

func TestAClockShiftMovesEveryDateAndCanBeUndone(t *testing.T) {
	at := time.UnixMilli(1_600_000_000_000)
	doc := func(at time.Time) bson.D {
		return bson.D{
			{Key: "s", Value: "text"}, {Key: "bin", Value: bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}},
			{Key: "re", Value: bson.Regex{Pattern: "a.b", Options: "i"}}, {Key: "ptr", Value: bson.DBPointer{DB: "db", Pointer: bson.NilObjectID}},
			{Key: "u", Value: bson.Undefined{}}, {Key: "n", Value: nil}, {Key: "min", Value: bson.MinKey{}}, {Key: "b", Value: true},
			{Key: "dec", Value: bson.NewDecimal128(1, 2)}, {Key: "f", Value: 1.5}, {Key: "i", Value: int32(1)}, {Key: "l", Value: int64(1)},
			{Key: "js", Value: bson.JavaScript("x")}, {Key: "sym", Value: bson.Symbol("y")}, {Key: "id", Value: bson.NilObjectID},
			{Key: "scoped", Value: bson.CodeWithScope{Code: "x", Scope: bson.D{{Key: "at", Value: at}}}},
			{Key: "deep", Value: bson.D{{Key: "list", Value: bson.A{at, bson.D{{Key: "at", Value: at}}}}}},
			{Key: "operationTime", Value: bson.Timestamp{T: 5000, I: 3}}, {Key: "please", Value: bson.Timestamp{}},
			{Key: "at", Value: at},
		}
	}
	for _, flags := range []uint32{0, wire.FlagChecksum} {
		raw := msg(t, flags, doc(at), wire.Sequence{Name: "documents", Docs: marshalAny(t, doc(at))})
		m, err := wire.Parse(slices.Clone(raw))
		require.NoError(t, err)
		shift := clockShift(-time.Hour)
		require.True(t, shift.apply(m), "not applied")
		want := msg(t, flags, doc(at.Add(-time.Hour)), wire.Sequence{Name: "documents", Docs: marshalAny(t, doc(at.Add(-time.Hour)))})
		if !bytes.Equal(m.Raw, want) {
			t.Errorf("got  %v\nwant %v", m.Body, bson.Raw(want[len(want)-len(m.Body):]))
		}
		assert.True(t, (-shift).apply(m), "not applied back")
		assert.Equal(t, raw, m.Raw)
	}
}

// FuzzMessage feeds bytes to everything that looks into messages. Nothing panics or takes
// more memory than a multiple of the input, and a message that parses keeps its meaning when
// it is put together again.
func FuzzMessage(f *testing.F) {
	f.Add(insertMsg(f, wire.FlagChecksum))
	f.Add(insertMsg(f, wire.FlagMoreToCome))
	f.Add(query(f, bson.D{{Key: "isMaster", Value: 1}}))
	f.Add(msg(f, 0, bson.D{{Key: "ok", Value: 1}, {Key: "code", Value: bson.CodeWithScope{Code: "x", Scope: bson.D{{Key: "at", Value: time.UnixMilli(1)}}}}}))
	f.Add(msg(f, 0, bson.D{{Key: "hosts", Value: bson.A{"a:1"}}, {Key: "me", Value: "a:1"}, {Key: "localTime", Value: time.UnixMilli(1)}}))
	f.Add([]byte{0xff, 0xff, 0xff, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0})
	proxy := proxyWithoutNetwork(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		buf, err := wire.Read(bytes.NewReader(data), nil)
		if cap(buf) > 4*len(data)+128<<10 {
			t.Fatalf("%d bytes for %d", cap(buf), len(data))
		}
		if err != nil {
			buf = data
		} else if !bytes.Equal(buf, data[:len(buf)]) {
			t.Fatal("other bytes were read than sent")
		}
		m, err := wire.Parse(buf)
		if err != nil || m.Body == nil {
			return
		}
		_ = m.Command()
		doc, err := m.Document()
		if err == nil && doc.Validate() != nil {
			t.Fatalf("folded into a bad document: %x", doc)
		}
		x := &exchange{command: doc}
		_ = x.failure(CodeNotWritablePrimary, nil)
		_ = m.Answer(1, marshal(x.failure(1, nil)))
		_ = proxy.readdressed(m)
		same := m.WithBody(m.Body)
		if same.Command() != m.Command() || len(same.Sequences) != len(m.Sequences) || !bytes.Equal(same.Body, m.Body) {
			t.Fatal("the message changed when it was put together again")
		}
		m.Seal()
		before := slices.Clone(m.Raw)
		shift := clockShift(time.Hour)
		if shift.apply(m) && (-shift).apply(m) && !bytes.Equal(before, m.Raw) {
			t.Fatal("shifting back does not restore the message")
		}
	})
}

// proxyWithoutNetwork returns a closed proxy, which can still rewrite replies to hello.
func proxyWithoutNetwork(t testing.TB) *Proxy {
	p := New(t, "127.0.0.1:1")
	_ = p.Close()
	return p
}
