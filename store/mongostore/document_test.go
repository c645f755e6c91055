package mongostore

import (
	"bytes"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
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
		r := readRecord(raw)
		_ = r.Status("k", now)
		_, _ = r.Holder("ID")
		end, _ := mongobase.Time(bson.Raw(raw).Lookup(fieldExpireAt))
		if r.Stranger == "" && !r.expireAt.Equal(end) {
			t.Errorf("taken for ours: %+v", r)
		}
		for _, h := range r.Holders {
			at, ok := mongobase.Time(bson.Raw(raw).Lookup(fieldHolders, h.ID, fieldExpireAt))
			assert.True(t, ok, "a holder without an end of its own: %+v", h)
			assert.True(t, h.ExpireAt.Equal(at), "a holder without an end of its own: %+v", h)
		}
		if r.Stranger != "" && r.Foreign().Error() == "" {
			t.Error("a foreign document without a name")
		}
	})
}

// Somebody wrote it by hand. Otherwise every claim of the key would miss, for ever.
func TestAHolderThatNoFilterCanNameIsForeign(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	holder := bson.D{{Key: "owner", Value: "o"}, {Key: "since", Value: now}, {Key: "expireAt", Value: now}, {Key: "ttl", Value: int64(30000)}, {Key: "beat", Value: int64(1)}}
	for id, foreign := range map[string]bool{"ID": false, "": true, "a.b": true, "$a": true} {
		r := readRecord(marshalled(t, bson.D{
			{Key: "_id", Value: "k"}, {Key: "mongolock", Value: 1}, {Key: "mode", Value: "exclusive"},
			{Key: "holders", Value: bson.D{{Key: id, Value: holder}}}, {Key: "expireAt", Value: now}, {Key: "rev", Value: int64(1)}, {Key: "at", Value: now},
		}))
		assert.Equal(t, foreign, r.Stranger != "", "%s: %s", id, r.Stranger)
	}
}

// Somebody wrote it by hand. As a time.Duration each would be half a millisecond.
func TestATTLThatNoDurationHoldsIsNotShort(t *testing.T) {
	for ms, foreign := range map[int64]bool{18_446_744_073_710: false, -18_446_744_073_709: true} {
		h, ok := readHolder("ID", bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: marshalled(t, bson.D{{Key: "expireAt", Value: time.Now()}, {Key: "ttl", Value: ms}, {Key: "beat", Value: int64(1)}})})
		assert.Equal(t, !foreign, ok)
		assert.True(t, foreign || h.TTL > 365*24*time.Hour, "%v", h.TTL)
	}
}
