package mongostore

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/lease"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/store"
)

// Any document under a key is read without a panic. A document that is not entirely ours is
// foreign.
func FuzzAForeignDocumentIsNeverTakenForOurs(f *testing.F) {
	now := time.UnixMilli(1_800_000_000_000)
	holder := bson.D{{Key: "owner", Value: "o"}, {Key: "note", Value: "n"}, {Key: "since", Value: now}, {Key: "expireAt", Value: now}}
	ours := bson.D{
		{Key: "_id", Value: "k"}, {Key: "mongolock", Value: 1}, {Key: "mode", Value: "exclusive"},
		{Key: "holders", Value: bson.D{{Key: "ID", Value: holder}}}, {Key: "expireAt", Value: now}, {Key: "rev", Value: int64(1)}, {Key: "at", Value: now},
	}
	f.Add(marshalled(f, ours))
	f.Add(marshalled(f, bson.D{{Key: "_id", Value: 7}}))
	f.Add(marshalled(f, append(bson.D{{Key: "mongolock", Value: bson.A{1}}}, ours...)))
	for i := range ours {
		f.Add(marshalled(f, append(append(bson.D{}, ours[:i]...), ours[i+1:]...)))
		broken := append(bson.D{}, ours...)
		broken[i].Value = bson.D{{Key: "x", Value: bson.A{nil, 1}}}
		f.Add(marshalled(f, broken))
	}
	for _, s := range foreignDocuments {
		f.Add(marshalled(f, s))
	}
	whole := marshalled(f, ours)
	for _, n := range []int{0, 1, 4, 5, 20, len(whole) / 2, len(whole) - 1} {
		f.Add(whole[:n])
		f.Add(append(bytes.Clone(whole[:n]), 0xff, 0xff, 0xff, 0x7f, 0))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := layout.Read(raw)
		_ = r.Status("k", now)
		_, _ = r.Has("ID")
		end, _ := server.Time(bson.Raw(raw).Lookup(fieldExpireAt))
		if r.Foreign == nil && end.IsZero() {
			t.Errorf("taken for ours: %+v", r)
		}
		for _, h := range r.Holders {
			at, ok := server.Time(bson.Raw(raw).Lookup(fieldHolders, h.ID, fieldExpireAt))
			assert.True(t, ok, "a holder without an end of its own: %+v", h)
			assert.True(t, h.ExpireAt.Equal(at), "a holder without an end of its own: %+v", h)
		}
		if r.Foreign != nil && r.Foreign.Error() == "" {
			t.Error("a foreign document without a name")
		}
	})
}

// Somebody wrote it by hand. Otherwise every claim of the key would miss, for ever.
func TestAHolderThatNoFilterCanNameIsForeign(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	holder := bson.D{{Key: "owner", Value: "o"}, {Key: "since", Value: now}, {Key: "expireAt", Value: now}, {Key: "ttl", Value: int64(30000)}, {Key: "beat", Value: int64(1)}}
	for id, foreign := range map[string]bool{"ID": false, "": true, "a.b": true, "$a": true} {
		r := layout.Read(marshalled(t, bson.D{
			{Key: "_id", Value: "k"}, {Key: "mongolock", Value: 1}, {Key: "mode", Value: "exclusive"},
			{Key: "holders", Value: bson.D{{Key: id, Value: holder}}}, {Key: "expireAt", Value: now}, {Key: "rev", Value: int64(1)}, {Key: "at", Value: now},
		}))
		assert.Equal(t, foreign, r.Foreign != nil, "%s: %v", id, r.Foreign)
	}
}

// Somebody wrote it by hand. As a time.Duration each would be half a millisecond.
func TestATTLThatNoDurationHoldsIsNotShort(t *testing.T) {
	for ms, foreign := range map[int64]bool{18_446_744_073_710: false, -18_446_744_073_709: true} {
		r := layout.Read(lockDocument(t, bson.E{Key: fieldHolders, Value: bson.D{{Key: "ID", Value: bson.D{{Key: "expireAt", Value: time.Now()}, {Key: "ttl", Value: ms}, {Key: "beat", Value: int64(1)}}}}}))
		assert.Equal(t, foreign, r.Foreign != nil)
		assert.True(t, foreign || r.Holders[0].TTL > 365*24*time.Hour, "%+v", r)
	}
}

// lockDocument returns a document that this library writes.
func lockDocument(t testing.TB, more ...bson.E) []byte {
	t.Helper()
	now := bson.DateTime(1_767_225_600_000)
	raw, err := bson.Marshal(append(bson.D{
		{Key: "_id", Value: "k"}, {Key: fieldVersion, Value: 1}, {Key: fieldMode, Value: "exclusive"},
		{Key: fieldHolders, Value: bson.D{{Key: "ID", Value: bson.D{
			{Key: lease.FieldOwner, Value: "me"}, {Key: lease.FieldNote, Value: ""}, {Key: lease.FieldSince, Value: now}, {Key: fieldExpireAt, Value: now},
			{Key: lease.FieldTTL, Value: int64(1000)}, {Key: lease.FieldBeat, Value: int64(1)}, {Key: lease.FieldEpoch, Value: bson.ObjectID{3}},
		}}}},
		{Key: fieldExpireAt, Value: now}, {Key: fieldRev, Value: int64(1)}, {Key: lease.FieldAt, Value: now},
	}, more...))
	require.NoError(t, err)
	return raw
}

func marshalled(t testing.TB, d bson.D) []byte {
	t.Helper()
	raw, err := bson.Marshal(d)
	require.NoError(t, err)
	return raw
}

// A document of any shape is read without a panic, and one that does not have our
// mark is not touched by a claim, a release or a renewal, whatever else is in it.
func FuzzADocumentOfAnyShapeIsReadAndAForeignOneIsLeftAlone(f *testing.F) {
	f.Add(lockDocument(f))
	f.Add(lockDocument(f, bson.E{Key: lease.FieldLine, Value: bson.A{"x:a:1", "s:b:2"}}, bson.E{Key: lease.FieldWaits, Value: bson.D{
		{Key: "x:a:1", Value: bson.D{{Key: lease.FieldOwner, Value: "me"}, {Key: lease.FieldSeen, Value: bson.DateTime(1)}}}, {Key: "s:b:2", Value: 1},
	}}))
	f.Add(lockDocument(f, bson.E{Key: lease.FieldLine, Value: bson.A{"x:a:1", 7}}))
	f.Add(lockDocument(f, bson.E{Key: lease.FieldLine, Value: "x:a:1"}))
	f.Add(marshalled(f, bson.D{{Key: "_id", Value: "k"}, {Key: fieldExpireAt, Value: bson.DateTime(0)}}))
	f.Add(marshalled(f, bson.D{{Key: "_id", Value: "k"}, {Key: fieldVersion, Value: 2}, {Key: fieldHolders, Value: bson.A{1}}}))
	f.Add(marshalled(f, bson.D{{Key: "_id", Value: 1.5}, {Key: fieldVersion, Value: bson.D{}}, {Key: fieldRev, Value: nil}}))
	f.Add([]byte{5, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		record := layout.Read(raw)
		_ = record.Status("k", time.Now())
		if record.Foreign == nil && len(record.Mode) == 0 && record.Rev == 0 {
			t.Fatal("taken for ours with nothing in it")
		}
		if !server.Is(bson.Raw(raw).Lookup(fieldVersion), shape) && bson.Raw(raw).Validate() == nil {
			leftAlone(t, raw)
		}
	})
}

// leftAlone inserts a foreign document into a database, and sends what the store sends.
func leftAlone(t *testing.T, raw []byte) {
	var doc bson.D
	if bson.Unmarshal(raw, &doc) != nil {
		return
	}
	mine := bson.D{{Key: "_id", Value: "k"}}
	seen := map[string]bool{"_id": true}
	for _, e := range doc {
		if seen[e.Key] {
			return // no server accepts a name twice
		}
		seen[e.Key] = true
		mine = append(mine, e)
	}
	now, db := time.UnixMilli(1_767_225_600_000), docdb.New()
	send := func(d bson.D) (bson.Raw, bool) {
		text, err := bson.Marshal(d)
		if err != nil {
			return nil, false
		}
		c, err := docdb.Parse(text)
		if err != nil {
			return nil, false // a type that the database in memory does not have
		}
		answer, _ := db.Do(c, now, false)
		out, err := bson.Marshal(answer)
		return out, err == nil
	}
	if _, ok := send(bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{mine}}, {Key: "$db", Value: "d"}}); !ok {
		return
	}
	before := db.Docs("d.c")
	claim := &lease.Claim{Claim: store.Claim{Ref: store.Ref{Key: "k", ID: "ID", Mode: store.Exclusive}, Limit: 1, TTL: time.Minute}}
	validity := lease.Validity{Since: now, Until: now.Add(time.Minute), TTL: time.Minute, Beat: 2, Rev: 2}
	update := bson.D(grant(claim, validity).Set(fieldRev, validity.Rev))
	renewal := lease.Extend("", path("ID"), lease.Validity{Until: now.Add(time.Minute), TTL: time.Minute, Beat: 3})
	for _, command := range []bson.D{
		{{Key: "query", Value: ours("k", bson.E{Key: fieldRev, Value: int64(1)})}, {Key: "update", Value: update}, {Key: "upsert", Value: true}},
		{{Key: "query", Value: ours("k", exclusively, lease.Exists(fieldHolders+".ID"))}, {Key: "remove", Value: true}},
		{{Key: "query", Value: ours("k", lease.Exists(fieldHolders+".ID"))}, {Key: "update", Value: renewal}},
		{{Key: "query", Value: ours("k", lock.Among("x:a:1"))}, {Key: "update", Value: append(bson.D(lock.Without("x:a:1")), lock.Timed())}},
		{{Key: "query", Value: ours("k", unheld, lock.Unawaited())}, {Key: "remove", Value: true}},
	} {
		_, ok := send(append(append(bson.D{{Key: "findAndModify", Value: "c"}}, command...), bson.E{Key: "$db", Value: "d"}))
		require.True(t, ok, "not answered")
	}
	after := db.Docs("d.c")
	require.Len(t, after, len(before), "a foreign document was touched: %v", before)
	require.Len(t, after, 1, "a foreign document was touched: %v", before)
	require.Equal(t, 1, db.Len(), "a foreign document was touched: %v, %v", before, after)
}

// Keys, notes and owners come back byte for byte from a document.
func FuzzKeysAndNotesComeBackByteForByte(f *testing.F) {
	for _, s := range []string{"nightly-report", "$x", "a.b", "\x00", "🔒", "a/b", " ", strings.Repeat("k", 1024)} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, key, note string) {
		if !utf8.ValidString(key) || !utf8.ValidString(note) {
			return // no client takes them
		}
		now := time.UnixMilli(1_767_225_600_000)
		claim := &lease.Claim{Claim: store.Claim{Ref: store.Ref{Key: key, ID: "ID", Mode: store.Exclusive}, Limit: 1, TTL: time.Minute, Owner: note, Note: note}}
		validity := lease.Validity{Since: now, Until: now.Add(time.Minute), TTL: time.Minute, Beat: 1, Rev: 2}
		set := grant(claim, validity).Set(fieldRev, validity.Rev)[0].Value.(bson.D)
		raw := marshalled(t, append(bson.D{{Key: "_id", Value: key}, {Key: fieldVersion, Value: shape}}, set...))
		r := layout.Read(raw)
		if r.Foreign != nil || r.Key != key || len(r.Holders) != 1 || r.Holders[0].Note != note || r.Holders[0].Owner != note {
			t.Fatalf("%q and %q came back as %+v", key, note, r)
		}
	})
}
