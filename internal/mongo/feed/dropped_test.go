package feed_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/follow"
	"github.com/mongolock/mongolock/internal/mongo/feed"
	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/store"
)

// A listener is a process that follows a feed.
type listener struct {
	*follow.Follower
	feed  *feed.Feed
	coll  *mongo.Collection
	heard chan string
}

// listens makes a process that follows the feed of a server.
func listens(t *testing.T, server *memmongo.Server, opts ...func(*options.ClientOptions)) listener {
	t.Helper()
	link := server.Link()
	client, err := link.Connect(opts...)
	require.NoError(t, err)
	return follows(t, client, link)
}

func follows(t *testing.T, client *mongo.Client, link *memmongo.Link) listener {
	coll := client.Database("d").Collection("locks")
	l := listener{feed: feed.Beside(server.New(coll, nil)), coll: coll, heard: make(chan string, 100)}
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
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprintf("made again by a notice, %v", told), func(t *testing.T) {
			for offset := range 5 {
				synctest.Test(t, func(t *testing.T) {
					server := memmongo.New()
					l, other := listens(t, server), listens(t, server)
					l.hears("")
					other.hears("")
					require.NoError(t, other.feed.Notify(t.Context(), notice("before")))
					l.hears("before")
					time.Sleep(time.Duration(offset) * 2 * time.Second)
					require.NoError(t, other.coll.Database().Collection(wakes).Drop(t.Context()))
					dropped := time.Now()
					if told {
						require.NoError(t, other.feed.Notify(t.Context(), notice("lost")))
					}
					l.hears("")
					assert.LessOrEqual(t, time.Since(dropped), 10*time.Second, "offset %d", offset)
					require.NoError(t, other.feed.Notify(t.Context(), notice("after")))
					l.hears("after")
				})
			}
		})
	}
}

const wakes = "locks.wake"

// Another client's notice makes the collection, uncapped, just before this one would. That is no
// server without capped collections, of which it would be asked no more.
func TestAFeedThatANoticeMadeUncappedFirstIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memmongo.New()
		other := listens(t, server)
		other.hears("")
		other.Close() // it still tells others, for a minute, as if the collection were there and capped
		times := 3
		link := server.Link()
		client, err := mongo.Connect(options.Client().ApplyURI("mongodb://memory:27017/?directConnection=true").SetDialer(link).SetMonitor(&event.CommandMonitor{
			Started: func(_ context.Context, c *event.CommandStartedEvent) {
				if c.CommandName == "create" && times > 0 {
					times--
					assert.NoError(t, other.feed.Notify(t.Context(), notice("lost")))
				}
			},
		}))
		require.NoError(t, err)
		require.NoError(t, other.coll.Database().Collection(wakes).Drop(t.Context()))
		l := follows(t, client, link)
		time.Sleep(time.Minute)
		assert.Zero(t, times)
		assert.Equal(t, store.FeedLive, l.State())
	})
}

func TestAFeedThatHearsNothingSendsOneSmallCommandInTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tap := &testserver.Tap{}
		l := listens(t, memmongo.New(), tap.On)
		l.hears("")
		time.Sleep(time.Second)
		tap.Take()
		time.Sleep(3 * time.Minute)
		sent := tap.TakeNames()
		assert.InDelta(t, 18, len(sent), 1, "in three minutes")
		assert.Equal(t, []string{"getMore"}, slices.Compact(sent))
	})
}
