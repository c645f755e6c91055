package pathlock

import (
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// What it takes to read a tree that another process wrote.
func BenchmarkDecode10000Locks(b *testing.B) {
	locks := bson.D{}
	now := time.UnixMilli(1_800_000_000_000)
	for i := range 10_000 {
		locks = append(locks, bson.E{Key: newToken()[len(tokenPrefix):], Value: writeLock(Lock{
			Path: fmt.Sprintf("/dir%d/file%d", i/100, i%100), Mode: Exclusive, Depth: Zero,
			Timeout: time.Hour, Since: now, ExpireAt: now.Add(time.Hour),
		})})
	}
	raw, err := bson.Marshal(bson.D{{Key: "_id", Value: "files"}, {Key: fieldMark, Value: 1}, {Key: fieldRev, Value: bson.NewObjectID()}, {Key: fieldLocks, Value: locks}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		found, err := mongoShape("files", raw)
		if err == nil {
			_, err = found.decode()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
