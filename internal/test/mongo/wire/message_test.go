package wire

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
func msg(t testing.TB, flags uint32, body any, sequences ...Sequence) []byte {
	t.Helper()
	doc, err := bson.Marshal(body)
	require.NoError(t, err)
	raw := make([]byte, HeaderLen)
	order.PutUint32(raw[4:], 7)
	order.PutUint32(raw[12:], OpMsg)
	raw = order.AppendUint32(raw, flags)
	for _, s := range sequences { // before the body: the order is free
		raw = append(raw, 1)
		raw = order.AppendUint32(raw, uint32(4+len(s.Name)+1+len(s.Docs)))
		raw = append(append(append(raw, s.Name...), 0), s.Docs...)
	}
	raw = append(append(raw, 0), doc...)
	if flags&FlagChecksum != 0 {
		raw = append(raw, 0, 0, 0, 0)
	}
	order.PutUint32(raw, uint32(len(raw)))
	if flags&FlagChecksum != 0 {
		order.PutUint32(raw[len(raw)-4:], crc32.Checksum(raw[:len(raw)-4], castagnoli))
	}
	return raw
}

// query returns an OP_QUERY, as a driver's first hello is one.
func query(t testing.TB, body any) []byte {
	t.Helper()
	raw := make([]byte, HeaderLen+4)
	order.PutUint32(raw[4:], 8)
	order.PutUint32(raw[12:], OpQuery)
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
	return msg(t, flags, bson.D{{Key: "insert", Value: "things"}, {Key: "$db", Value: "db"}}, Sequence{"documents", docs})
}

func TestAMessageWithANewBodyKeepsSequencesChecksumAndFlags(t *testing.T) {
	raw := insertMsg(t, FlagChecksum|FlagExhaustAllowed)
	m, err := Parse(raw)
	require.NoError(t, err)
	assert.Equal(t, "insert", m.Command())
	changed := m.WithBody(marshalAny(t, bson.D{{Key: "insert", Value: "things"}, {Key: "$db", Value: "db"}, {Key: "ordered", Value: false}}))
	back, err := Read(bytes.NewReader(changed.Raw), nil)
	require.NoError(t, err)
	m, err = Parse(back)
	require.NoError(t, err)
	doc, err := m.Document()
	require.NoError(t, err)
	want := bson.D{
		{Key: "insert", Value: "things"}, {Key: "$db", Value: "db"}, {Key: "ordered", Value: false},
		{Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: "a"}, {Key: "at", Value: time.UnixMilli(1000)}}, bson.D{{Key: "_id", Value: "b"}}}},
	}
	assert.Equal(t, marshalAny(t, want), doc)
	assert.EqualValues(t, FlagChecksum|FlagExhaustAllowed, m.Flags)
	assert.EqualValues(t, 7, m.RequestID)
	end := len(back) - 4
	assert.Equal(t, crc32.Checksum(back[:end], castagnoli), order.Uint32(back[end:]))
}

func TestALegacyHelloIsAnsweredByALegacyReply(t *testing.T) {
	m, err := Parse(query(t, bson.D{{Key: "isMaster", Value: 1}, {Key: "helloOk", Value: true}}))
	require.NoError(t, err)
	assert.Equal(t, "isMaster", m.Command())
	reply := m.Answer(3, marshalAny(t, bson.D{{Key: "ok", Value: 1}}))
	assert.EqualValues(t, OpReply, reply.OpCode)
	assert.EqualValues(t, 8, reply.ResponseTo)
	assert.EqualValues(t, 1, reply.Body.Lookup("ok").Int32())
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
		"no flags":          mutate(func(b []byte) []byte { return b[:HeaderLen+2] }),
		"no section":        mutate(func(b []byte) []byte { return b[:HeaderLen+4] }),
		"unknown section":   mutate(func(b []byte) []byte { b[HeaderLen+4] = 9; return b }),
		"sequence too long": mutate(func(b []byte) []byte { order.PutUint32(b[HeaderLen+5:], 1<<30); return b }),
		"negative length":   mutate(func(b []byte) []byte { order.PutUint32(b[HeaderLen+5:], 1<<31); return b }),
		"body cut":          mutate(func(b []byte) []byte { return b[:len(b)-3] }),
		"two bodies":        mutate(func(b []byte) []byte { return append(b, 0, 5, 0, 0, 0, 0) }),
		"query, no name":    mutate(func(b []byte) []byte { order.PutUint32(b[12:], OpQuery); return b[:HeaderLen+6] }),
		"reply, short":      mutate(func(b []byte) []byte { order.PutUint32(b[12:], OpReply); return b[:HeaderLen+6] }),
	} {
		_, err := Parse(raw)
		assert.ErrorIs(t, err, ErrMalformed, name)
	}
	for _, length := range []uint32{0, HeaderLen - 1, MaxMessage + 1, math.MaxUint32} {
		raw := order.AppendUint32(nil, length)
		_, err := Read(bytes.NewReader(append(raw, make([]byte, 64)...)), nil)
		assert.ErrorIs(t, err, ErrMalformed, "length %d", length)
	}
}

func TestALengthThatIsTooLargeCostsNoMemory(t *testing.T) {
	raw := make([]byte, 100)
	order.PutUint32(raw, MaxMessage)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Read(bytes.NewReader(raw), nil)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "bytes allocated for 100 read")
}
