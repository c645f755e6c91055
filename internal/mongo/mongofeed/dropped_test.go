package mongofeed_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/follow"
	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/mongo/mongofeed"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/store"
)

// A listener is a process that follows a feed.
type listener struct {
	*follow.Follower
	feed  *mongofeed.Feed
	coll  *mongo.Collection
	heard chan string
}

// listens makes a process that follows the feed of a server.
func listens(t *testing.T, server *memmongo.Server) listener {
	t.Helper()
	link := server.Link()
	client, err := link.Connect()
	require.NoError(t, err)
	coll := client.Database("d").Collection("locks")
	l := listener{feed: mongofeed.Beside(mongobase.New(coll, nil)), coll: coll, heard: make(chan string, 100)}
	l.Follower = follow.New(context.Background(), l.feed, store.Audience{Address: "me"}, func(n store.Notice) { l.heard <- n.Key }, nil)
	l.Join()
	t.Cleanup(func() {
		l.Close()
		_ = client.Disconnect(context.Background())
		link.Close()
	})
	return l
}

// hears waits until a key is heard of, "" for the opening of the feed.
func (l listener) hears(key string) {
	for k := range l.heard {
		if k == key {
			return
		}
	}
}

func notice(key string) store.Notice {
	return store.Notice{Topic: store.TopicLocks, Key: key, Kind: store.KindOffered, To: "me"}
}

// The server tells of it only when a read of the cursor ends, as MongoDB 5.0 does. A client that
// tells others, and does not know of it either, makes the collection again, uncapped.
func TestAFeedThatIsDroppedIsFoundAgainWithinTenSeconds(t *testing.T) {
	for offset := range 5 {
		for _, told := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				server := memmongo.New()
				l, other := listens(t, server), listens(t, server)
				l.hears("")
				other.hears("")
				require.NoError(t, other.feed.Notify(t.Context(), notice("before")))
				l.hears("before")
				time.Sleep(time.Duration(offset) * 2 * time.Second)
				require.NoError(t, other.coll.Database().Collection("locks.wake").Drop(t.Context()))
				dropped := time.Now()
				if told {
					require.NoError(t, other.feed.Notify(t.Context(), notice("lost")))
				}
				l.hears("")
				assert.LessOrEqual(t, time.Since(dropped), 10*time.Second, "offset %d, made again by a notice: %v", offset, told)
				require.NoError(t, other.feed.Notify(t.Context(), notice("after")))
				l.hears("after")
			})
		}
	}
}

func TestAFeedThatHearsNothingSendsOneSmallCommandInTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listens(t, memmongo.New())
		l.hears("")
		time.Sleep(time.Second)
		before := l.feed.Commands()
		time.Sleep(3 * time.Minute)
		for name, n := range l.feed.Commands() {
			if sent := n - before[name]; name == "getMore" {
				assert.InDelta(t, 18, sent, 1, "in three minutes")
			} else {
				assert.Zero(t, sent, name)
			}
		}
	})
}
