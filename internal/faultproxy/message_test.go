package faultproxy

import (
	"bytes"
	"hash/crc32"
	"io"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// msg returns an OP_MSG.
func msg(t testing.TB, flags uint32, body any, sequences ...sequence) []byte {
	t.Helper()
	doc, err := bson.Marshal(body)
	require.NoError(t, err)
	raw := make([]byte, headerLen)
	order.PutUint32(raw[4:], 7)
	order.PutUint32(raw[12:], opMsg)
	raw = order.AppendUint32(raw, flags)
	for _, s := range sequences { // before the body: the order is free
		raw = append(raw, 1)
		raw = order.AppendUint32(raw, uint32(4+len(s.name)+1+len(s.docs)))
		raw = append(append(append(raw, s.name...), 0), s.docs...)
	}
	raw = append(append(raw, 0), doc...)
	if flags&flagChecksum != 0 {
		raw = append(raw, 0, 0, 0, 0)
	}
	order.PutUint32(raw, uint32(len(raw)))
	if flags&flagChecksum != 0 {
		order.PutUint32(raw[len(raw)-4:], crc32.Checksum(raw[:len(raw)-4], castagnoli))
	}
	return raw
}

// query returns an OP_QUERY, as a driver's first hello is one.
func query(t testing.TB, body any) []byte {
	t.Helper()
	raw := make([]byte, headerLen+4)
	order.PutUint32(raw[4:], 8)
	order.PutUint32(raw[12:], opQuery)
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
	return msg(t, flags, bson.D{{Key: "insert", Value: "things"}, {Key: "$db", Value: "db"}}, sequence{"documents", docs})
}

func TestAMessageWithANewBodyKeepsSequencesChecksumAndFlags(t *testing.T) {
	raw := insertMsg(t, flagChecksum|flagExhaustAllowed)
	m, err := parseMessage(raw)
	require.NoError(t, err)
	assert.Equal(t, "insert", m.command())
	changed := m.edited(func(d bson.D) bson.D { return with(d, "ordered", false) })
	back, err := readMessage(bytes.NewReader(changed.raw), nil)
	require.NoError(t, err)
	m, err = parseMessage(back)
	require.NoError(t, err)
	doc, err := m.document()
	require.NoError(t, err)
	want := bson.D{
		{Key: "insert", Value: "things"}, {Key: "$db", Value: "db"}, {Key: "ordered", Value: false},
		{Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: "a"}, {Key: "at", Value: time.UnixMilli(1000)}}, bson.D{{Key: "_id", Value: "b"}}}},
	}
	assert.Equal(t, marshalAny(t, want), doc)
	assert.EqualValues(t, flagChecksum|flagExhaustAllowed, m.flags)
	assert.EqualValues(t, 7, m.requestID)
	end := len(back) - 4
	assert.Equal(t, crc32.Checksum(back[:end], castagnoli), order.Uint32(back[end:]))
}

func TestALegacyHelloIsAnsweredByALegacyReply(t *testing.T) {
	m, err := parseMessage(query(t, bson.D{{Key: "isMaster", Value: 1}, {Key: "helloOk", Value: true}}))
	require.NoError(t, err)
	assert.Equal(t, "isMaster", m.command())
	reply := m.answer(3, marshalAny(t, bson.D{{Key: "ok", Value: 1}}))
	assert.EqualValues(t, opReply, reply.opCode)
	assert.EqualValues(t, 8, reply.responseTo)
	assert.EqualValues(t, 1, reply.body.Lookup("ok").Int32())
}

func TestMalformedMessagesAreErrors(t *testing.T) {
	good := insertMsg(t, 0)
	mutate := func(f func(b []byte) []byte) []byte {
		b := f(slices.Clone(good))
		if len(b) >= 4 {
			order.PutUint32(b, uint32(len(b)))
		}
		return b
	}
	for name, raw := range map[string][]byte{
		"nothing":           nil,
		"header cut":        good[:10],
		"wrong length":      append(slices.Clone(good), 0),
		"no flags":          mutate(func(b []byte) []byte { return b[:headerLen+2] }),
		"no section":        mutate(func(b []byte) []byte { return b[:headerLen+4] }),
		"unknown section":   mutate(func(b []byte) []byte { b[headerLen+4] = 9; return b }),
		"sequence too long": mutate(func(b []byte) []byte { order.PutUint32(b[headerLen+5:], 1<<30); return b }),
		"negative length":   mutate(func(b []byte) []byte { order.PutUint32(b[headerLen+5:], 1<<31); return b }),
		"body cut":          mutate(func(b []byte) []byte { return b[:len(b)-3] }),
		"two bodies":        mutate(func(b []byte) []byte { return append(b, 0, 5, 0, 0, 0, 0) }),
		"query, no name":    mutate(func(b []byte) []byte { order.PutUint32(b[12:], opQuery); return b[:headerLen+6] }),
		"reply, short":      mutate(func(b []byte) []byte { order.PutUint32(b[12:], opReply); return b[:headerLen+6] }),
	} {
		_, err := parseMessage(raw)
		assert.ErrorIs(t, err, errMalformed, name)
	}
	for _, length := range []uint32{0, headerLen - 1, maxMessage + 1, math.MaxUint32} {
		raw := order.AppendUint32(nil, length)
		_, err := readMessage(bytes.NewReader(append(raw, make([]byte, 64)...)), nil)
		assert.ErrorIs(t, err, errMalformed, "length %d", length)
	}
}

func TestALengthThatIsTooLargeCostsNoMemory(t *testing.T) {
	raw := make([]byte, 100)
	order.PutUint32(raw, maxMessage)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readMessage(bytes.NewReader(raw), nil)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "bytes allocated for 100 read")
}

func TestAClockShiftMovesEveryDateAndCanBeUndone(t *testing.T) {
	at := time.UnixMilli(1_600_000_000_000)
	doc := func(at time.Time, ts uint32) bson.D {
		return bson.D{
			{Key: "s", Value: "text"}, {Key: "bin", Value: bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}},
			{Key: "re", Value: bson.Regex{Pattern: "a.b", Options: "i"}}, {Key: "ptr", Value: bson.DBPointer{DB: "db", Pointer: bson.NilObjectID}},
			{Key: "u", Value: bson.Undefined{}}, {Key: "n", Value: nil}, {Key: "min", Value: bson.MinKey{}}, {Key: "b", Value: true},
			{Key: "dec", Value: bson.NewDecimal128(1, 2)}, {Key: "f", Value: 1.5}, {Key: "i", Value: int32(1)}, {Key: "l", Value: int64(1)},
			{Key: "js", Value: bson.JavaScript("x")}, {Key: "sym", Value: bson.Symbol("y")}, {Key: "id", Value: bson.NilObjectID},
			{Key: "scoped", Value: bson.CodeWithScope{Code: "x", Scope: bson.D{{Key: "at", Value: at}}}},
			{Key: "deep", Value: bson.D{{Key: "list", Value: bson.A{at, bson.D{{Key: "at", Value: at}}}}}},
			{Key: "operationTime", Value: bson.Timestamp{T: ts, I: 3}}, {Key: "please", Value: bson.Timestamp{}},
			{Key: "at", Value: at},
		}
	}
	for _, flags := range []uint32{0, flagChecksum} {
		raw := msg(t, flags, doc(at, 5000), sequence{"documents", marshalAny(t, doc(at, 5000))})
		m, err := parseMessage(slices.Clone(raw))
		require.NoError(t, err)
		shift := clockShift{-time.Hour, -time.Hour}
		require.True(t, shift.apply(m), "not applied")
		want := msg(t, flags, doc(at.Add(-time.Hour), 1400), sequence{"documents", marshalAny(t, doc(at.Add(-time.Hour), 1400))})
		if !bytes.Equal(m.raw, want) {
			t.Errorf("got  %v\nwant %v", m.body, bson.Raw(want[len(want)-len(m.body):]))
		}
		assert.True(t, shift.back().apply(m), "not applied back")
		assert.Equal(t, raw, m.raw)
	}
}

// FuzzMessage feeds bytes to everything that looks into messages. Nothing panics or takes
// more memory than a multiple of the input, and a message that parses keeps its meaning when
// it is put together again.
func FuzzMessage(f *testing.F) {
	f.Add(insertMsg(f, flagChecksum))
	f.Add(insertMsg(f, flagMoreToCome))
	f.Add(query(f, bson.D{{Key: "isMaster", Value: 1}}))
	f.Add(msg(f, 0, bson.D{{Key: "ok", Value: 1}, {Key: "code", Value: bson.CodeWithScope{Code: "x", Scope: bson.D{{Key: "at", Value: time.UnixMilli(1)}}}}}))
	f.Add(msg(f, 0, bson.D{{Key: "hosts", Value: bson.A{"a:1"}}, {Key: "me", Value: "a:1"}, {Key: "localTime", Value: time.UnixMilli(1)}}))
	f.Add([]byte{0xff, 0xff, 0xff, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0})
	proxy := proxyWithoutNetwork(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		buf, err := readMessage(bytes.NewReader(data), nil)
		if cap(buf) > 4*len(data)+2*readStep {
			t.Fatalf("%d bytes for %d", cap(buf), len(data))
		}
		if err != nil {
			buf = data
		} else if !bytes.Equal(buf, data[:len(buf)]) {
			t.Fatal("other bytes were read than sent")
		}
		m, err := parseMessage(buf)
		if err != nil || m.body == nil {
			return
		}
		_ = m.command()
		doc, err := m.document()
		if err == nil && doc.Validate() != nil {
			t.Fatalf("folded into a bad document: %x", doc)
		}
		x := &exchange{command: doc}
		_ = x.failure(CodeNotWritablePrimary, nil)
		_ = m.answer(1, marshal(x.failure(1, nil)))
		_ = proxy.readdressed(m)
		same := m.withBody(m.body)
		if same.command() != m.command() || len(same.sequences) != len(m.sequences) || !bytes.Equal(same.body, m.body) {
			t.Fatal("the message changed when it was put together again")
		}
		m.seal()
		before := slices.Clone(m.raw)
		shift := clockShift{time.Hour, time.Hour}
		if shift.apply(m) && shift.back().apply(m) && !bytes.Equal(before, m.raw) {
			// A timestamp of T = 2^32 - 3600, I = 0 becomes the request for the server's own.
			if !bytes.Contains(before, []byte{0, 0, 0, 0, 0xf0, 0xf1, 0xff, 0xff}) {
				t.Fatal("shifting back does not restore the message")
			}
		}
	})
}

// proxyWithoutNetwork returns a closed proxy, which can still rewrite replies to hello.
func proxyWithoutNetwork(t testing.TB) *Proxy {
	p := New(t, "127.0.0.1:1")
	_ = p.Close()
	return p
}
