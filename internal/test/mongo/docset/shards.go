package docset

import (
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// NewSharded makes a router with a shard for each clock, which is that far before the bubble's.
// place says on which a document is: id is its _id, rendered if it is no string. Wake-ups, and
// all else that is no document of locks, are on the first.
func NewSharded(place func(id string) int, ahead ...time.Duration) *Set {
	s := New(0)
	s.place = place
	for _, by := range ahead {
		s.shards = append(s.shards, &shard{db: docdb.New(), ahead: by})
	}
	return s
}

type shard struct {
	db    *docdb.DB
	ahead time.Duration
	old   *docdb.DB // of a deposed primary that still answers; nil: there is none
}

func (x *shard) now() time.Time { return time.Now().Add(Epoch + x.ahead) }

// route runs a command where its documents are. With s.mu held.
func (s *Set) route(c docdb.Command) bson.D {
	locks := !strings.HasSuffix(c.Coll(), ".wake")
	switch {
	case c.Name == "hello":
		return bson.D{
			{Key: "isWritablePrimary", Value: true}, {Key: "msg", Value: "isdbgrid"},
			{Key: "localTime", Value: bson.DateTime(time.Now().Add(Epoch).UnixMilli())},
			{Key: "logicalSessionTimeoutMinutes", Value: int32(30)},
			{Key: "maxWireVersion", Value: int32(21)}, {Key: "ok", Value: 1.0},
		}
	case c.Name == "collStats":
		return bson.D{{Key: "ns", Value: c.NS()}, {Key: "sharded", Value: locks}, {Key: "ok", Value: 1.0}}
	case c.DB == "config":
		return bson.D{{Key: "cursor", Value: bson.D{{Key: "firstBatch", Value: bson.A{}}, {Key: "id", Value: int64(0)}, {Key: "ns", Value: c.NS()}}}, {Key: "ok", Value: 1.0}}
	}
	ids, named := c.IDs()
	if locks && !named && !c.Many() {
		return docdb.ErrNoShardKey
	}
	if !locks || !named && c.Name != "find" {
		return s.on(0, c)
	}
	var replies []bson.D
	for i := range s.shards {
		part := c
		if named {
			here := func(id string) bool { return s.place(id) == i }
			switch c.Name {
			case "insert", "update", "delete":
				if part = c.Part(here); !anyOf(ids, here) {
					continue
				}
			default:
				if !here(ids[0]) {
					continue
				}
			}
		}
		replies = append(replies, s.on(i, part))
	}
	return docdb.Merged(c, replies)
}

func anyOf(ids []string, is func(string) bool) bool {
	return slices.ContainsFunc(ids, is)
}

// on runs a command on one shard, which has heard of the other's time.
func (s *Set) on(i int, c docdb.Command) bson.D {
	x := s.shards[i]
	x.db.Hear(c.ClusterTime)
	for _, other := range s.shards {
		x.db.Hear(other.db.ClusterTime())
	}
	reply, _ := asked(c, x.db, x.old).Do(c, x.now(), false)
	s.db.Hear(x.db.ClusterTime())
	s.told = x.db.Last()
	return reply
}
