package feed

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/store"
)

// A document in the collection of wake-ups is a notice of ours or is ignored.
func FuzzAForeignDocumentIsNeverTakenForANotice(f *testing.F) {
	for _, d := range []bson.D{
		document(store.Notice{Topic: store.TopicLocks, Key: "k", Kind: store.KindOffered, To: "a", Place: "x:a:1"}),
		document(store.Notice{Topic: "jobs", Key: "k", Kind: "changed"}),
		document(store.Notice{Kind: kindSeed}),
		{{Key: fieldVersion, Value: int64(1)}, {Key: fieldTopic, Value: 7}, {Key: fieldKey, Value: bson.D{}}},
		{{Key: fieldVersion, Value: 2}, {Key: fieldTopic, Value: store.TopicLocks}},
		{{Key: "name", Value: "somebody's"}},
	} {
		raw, err := bson.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
		f.Add(raw[:len(raw)-3])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		n, ok := readNotice(raw)
		if ok && (n.Topic == "" || n.Kind == kindSeed) {
			t.Errorf("%q is taken for %+v", raw, n)
		}
		if ok && !server.Is(bson.Raw(raw).Lookup(fieldVersion), shape) {
			t.Errorf("a foreign document is taken for %+v", n)
		}
		if !ok || bson.Raw(raw).Validate() != nil {
			return
		}
		again, err := bson.Marshal(document(n))
		if err != nil {
			t.Fatal(err)
		}
		m, ok := readNotice(again)
		assert.True(t, ok, "read back")
		assert.Equal(t, n, m, "read back")
	})
}
