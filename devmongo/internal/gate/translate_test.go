package gate

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// command makes a message of a command, and of sequences of documents if there are any.
func commandOf(t *testing.T, command bson.D, sequences ...bson.E) message {
	t.Helper()
	marshal := func(v any) []byte {
		raw, err := bson.Marshal(v)
		require.NoError(t, err)
		return raw
	}
	body := append(make([]byte, 4), 0)
	body = append(body, marshal(command)...)
	for _, s := range sequences {
		var section []byte
		for _, d := range s.Value.(bson.A) {
			section = append(section, marshal(d)...)
		}
		section = append(append([]byte(s.Key), 0), section...)
		body = append(body, 1)
		body = binary.LittleEndian.AppendUint32(body, uint32(len(section)+4))
		body = append(body, section...)
	}
	return header(opMsg, body)
}

// translated returns the command that reaches the server.
func translated(t *testing.T, m message) bson.D {
	t.Helper()
	var tr translator
	to, answer := tr.translate(m)
	require.Nil(t, answer)
	require.EqualValues(t, len(to), binary.LittleEndian.Uint32(to))
	command, ok := to.document()
	require.True(t, ok)
	var d bson.D
	require.NoError(t, bson.Unmarshal(encoded(command.bson()).Value, &d))
	return d
}

func TestTheClockIsWrittenIntoEmbeddedDocumentsBySet(t *testing.T) {
	before := bson.NewDateTimeFromTime(time.Now())
	d := translated(t, commandOf(t, bson.D{
		{Key: "findAndModify", Value: "c"},
		{Key: "query", Value: bson.D{{Key: "_id", Value: "k"}}},
		{Key: "fields", Value: bson.D{{Key: "lock", Value: 1}}},
		{Key: "update", Value: bson.D{
			{Key: "$set", Value: bson.D{{Key: "lock.id", Value: "x"}}},
			{Key: "$currentDate", Value: bson.D{{Key: "lock.at", Value: true}, {Key: "at", Value: true}, {Key: "lock.stamp", Value: bson.D{{Key: "$type", Value: "timestamp"}}}}},
			{Key: "$unset", Value: bson.D{{Key: "lock.gone", Value: ""}}},
		}},
		{Key: "$db", Value: "d"},
	}))
	require.Len(t, d, 4, "without the projection")
	update := d[2].Value.(bson.D)
	require.Equal(t, []string{"$unset", "$set", "$currentDate"}, []string{update[0].Key, update[1].Key, update[2].Key})
	assert.Equal(t, bson.D{{Key: "at", Value: true}}, update[2].Value)
	set := update[1].Value.(bson.D)
	assert.Equal(t, bson.E{Key: "lock.id", Value: "x"}, set[0])
	assert.Equal(t, "lock.at", set[1].Key)
	assert.GreaterOrEqual(t, set[1].Value, before)
	assert.Equal(t, "lock.stamp", set[2].Key)
	assert.GreaterOrEqual(t, int64(set[2].Value.(bson.Timestamp).T), before.Time().Unix())
}

func TestEachOfManyUpdatesIsTranslated(t *testing.T) {
	update := func(path string) bson.D {
		return bson.D{{Key: "q", Value: bson.D{}}, {Key: "u", Value: bson.D{{Key: "$currentDate", Value: bson.D{{Key: path, Value: true}}}}}, {Key: "upsert", Value: true}}
	}
	all := bson.A{update("a.at"), update("at")}
	command := bson.D{{Key: "update", Value: "c"}, {Key: "$db", Value: "d"}}
	for name, m := range map[string]message{
		"a sequence": commandOf(t, command, bson.E{Key: "updates", Value: all}),
		"an array":   commandOf(t, append(command, bson.E{Key: "updates", Value: all})),
	} {
		d := translated(t, m)
		require.Equal(t, "updates", d[2].Key, name)
		got := d[2].Value.(bson.A)
		require.Len(t, got, 2, name)
		assert.Equal(t, "$set", got[0].(bson.D)[1].Value.(bson.D)[0].Key, name)
		assert.Equal(t, "upsert", got[0].(bson.D)[2].Key, name)
		assert.Equal(t, update("at"), got[1], "%s: as it was", name)
	}
}

func TestNoTwoTimestampsAreEqual(t *testing.T) {
	var tr translator
	spec := encoded(bson.D{{Key: "$type", Value: "timestamp"}})
	last := bson.Timestamp{}
	for range 10_000 {
		next := tr.now(spec).(bson.Timestamp)
		require.True(t, next.After(last))
		last = next
	}
}

func TestACappedCollectionIsRefused(t *testing.T) {
	m := commandOf(t, bson.D{{Key: "create", Value: "c"}, {Key: "capped", Value: true}, {Key: "size", Value: 1000}})
	binary.LittleEndian.PutUint32(m[4:], 77)
	var tr translator
	to, answer := tr.translate(m)
	require.Nil(t, to)
	assert.EqualValues(t, 77, binary.LittleEndian.Uint32(answer[8:]), "in response to")
	reply, ok := answer.document()
	require.True(t, ok)
	assert.EqualValues(t, commandNotFound, reply.value("code").AsInt64())

	plain := commandOf(t, bson.D{{Key: "create", Value: "c"}})
	to, answer = tr.translate(plain)
	assert.Nil(t, answer)
	assert.Equal(t, plain, to)
}

func TestWhatTheGateCannotReadGoesThroughAsItIs(t *testing.T) {
	pipeline := bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: 1}}}}}
	cut := commandOf(t, bson.D{{Key: "update", Value: "c"}})
	cut = cut[:len(cut)-3]
	withChecksum := commandOf(t, bson.D{{Key: "findAndModify", Value: "c"}, {Key: "fields", Value: bson.D{}}})
	withChecksum[headerSize] |= flagChecksum
	for name, m := range map[string]message{
		"cut short":     cut,
		"a checksum":    withChecksum,
		"an insert":     commandOf(t, bson.D{{Key: "insert", Value: "c"}}),
		"a pipeline":    commandOf(t, bson.D{{Key: "findAndModify", Value: "c"}, {Key: "update", Value: pipeline}}),
		"another array": commandOf(t, bson.D{{Key: "update", Value: "c"}, {Key: "updates", Value: 1}}),
	} {
		var tr translator
		to, answer := tr.translate(m)
		assert.Nil(t, answer, name)
		assert.Equal(t, m, to, name)
	}
}
