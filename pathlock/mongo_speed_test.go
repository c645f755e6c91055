package pathlock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// fill is a tree with many locks, as a document, and answers its size. (Setting as many
// fields one by one takes some servers seconds.)
func (b *bench) fill(many int) (size int) {
	b.t.Helper()
	now := time.UnixMilli(time.Now().UnixMilli())
	locks := make(bson.D, many)
	for i := range locks {
		locks[i] = bson.E{Key: strings.TrimPrefix(newToken(), tokenPrefix), Value: writeLock(Lock{
			Path: fmt.Sprintf("/dir%d/file%d", i/100, i%100), Mode: Exclusive, Depth: Zero,
			Timeout: time.Hour, Since: now, ExpireAt: now.Add(time.Hour),
		})}
	}
	raw, err := bson.Marshal(bson.D{
		{Key: "_id", Value: "files"}, {Key: fieldMark, Value: mongoVersion}, {Key: fieldRev, Value: bson.NewObjectID()},
		{Key: fieldAt, Value: now}, {Key: fieldLocks, Value: locks},
	})
	if err == nil {
		_, err = b.coll.InsertOne(b.ctx(), raw)
	}
	require.NoError(b.t, err)
	return len(raw)
}

// As many locks as a tree may have in memory at full speed cost no command more here, and
// the limit is some way off.
func TestARequestOn10000LocksIsOneReadAndOneWrite(t *testing.T) {
	const many = 10_000
	b := newBench(t)
	size := b.fill(many)
	tree := b.tree(b.tapped())
	for i := range 2 { // the first asks for the time
		l, err := tree.Lock(b.ctx(), exclusively("/new"))
		if err == nil {
			err = tree.Release(b.ctx(), "/new", l.Token)
		}
		require.NoError(t, err)
		if got, want := b.took(), "find findAndModify find findAndModify"; i > 0 && got != want {
			t.Errorf("a lock and its release sent %q, not %q", got, want)
		}
	}
	_, err := tree.Lock(b.ctx(), exclusively("/dir50"))
	assert.ErrorIs(t, err, ErrConflict)
	all, err := tree.Locks(b.ctx())
	if err != nil || len(all) != many {
		t.Errorf("%d locks, %v", len(all), err)
	}
	room := maxDocument / (size / many)
	if room < 3*many {
		t.Errorf("there is room for %d locks of %d bytes", room, size/many)
	}
	t.Logf("%d bytes, %d for each lock: room for %d", size, size/many, room)
}

// What a request costs on a tree with many locks, where nobody else writes and where
// somebody does, so that the document is decoded anew.
func BenchmarkOnMongo(b *testing.B) {
	for _, many := range []int{0, 100, 1_000, 10_000} {
		bench := newBench(b)
		size := bench.fill(many)
		m, other := bench.storage(), bench.storage()
		tree := bench.tree(m)
		request := func(b *testing.B) {
			l, err := tree.Lock(bench.ctx(), exclusively("/new"))
			if err == nil {
				err = tree.Release(bench.ctx(), "/new", l.Token)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("alone/%d", many), func(b *testing.B) {
			b.ReportMetric(float64(size), "document-bytes")
			for b.Loop() {
				request(b)
			}
		})
		b.Run(fmt.Sprintf("in-turn/%d", many), func(b *testing.B) {
			for b.Loop() {
				request(b)
				if _, err := other.Update(bench.ctx(), "files", func(*Document, Clock) (Edit, error) { return Edit{Touch: true}, nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
