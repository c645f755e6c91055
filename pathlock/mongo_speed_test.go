package pathlock

import (
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// What a request costs on a tree with many locks, where nobody else writes and where
// somebody does, so that the document is decoded anew.
func BenchmarkOnMongo(b *testing.B) {
	for _, many := range []int{0, 100, 1_000} {
		bench := newBench(b)
		m, other := bench.storage(), bench.storage()
		tree := bench.tree(m)
		if _, err := m.Update(bench.ctx(), "files", func(_ *Document, now Clock) (Edit, error) {
			e := Edit{Touch: true}
			for i := range many {
				e.Put = append(e.Put, Lock{
					Token: newToken(), Path: fmt.Sprintf("/dir%d/file%d", i/100, i%100), Mode: Exclusive, Depth: Zero,
					Timeout: time.Hour, Since: now.Latest, ExpireAt: now.end(time.Hour),
				})
			}
			return e, nil
		}); err != nil {
			b.Fatal(err)
		}
		raw, err := bench.coll.FindOne(bench.ctx(), bson.D{{Key: "_id", Value: "files"}}).Raw()
		if err != nil {
			b.Fatal(err)
		}
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
			b.ReportMetric(float64(len(raw)), "document-bytes")
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
