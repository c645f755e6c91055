package webdavlock_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/net/webdav"

	webdavlock "github.com/mongolock/mongolock/adapters/webdav"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/pathlock"
)

// A failing server is one on which every call of one client fails while it is told to, and none of the other.
type failing func(t *testing.T) (one, other *mongo.Client, fails func(bool))

// losing is one that what the client sends does not reach, or whose replies do not reach the client.
func losing(reply bool) failing {
	return func(t *testing.T) (one, other *mongo.Client, fails func(bool)) {
		set, failing := docset.New(0), new(atomic.Bool)
		one = set.Client(t, func(docdb.Command) (time.Duration, bool) {
			if failing.Load() {
				return 1000 * time.Hour, reply
			}
			return 0, true
		})
		return one, set.Client(t, docset.None), failing.Store
	}
}

func refusing(t *testing.T) (one, other *mongo.Client, fails func(bool)) {
	server := memmongo.New()
	link := server.Link()
	one, err := link.Connect()
	require.NoError(t, err)
	t.Cleanup(func() { _ = one.Disconnect(t.Context()); link.Close() })
	return one, server.Client(t), func(is bool) {
		if link.Cut(nil); is {
			link.Cut(errors.New("connection refused"))
		}
	}
}

// A server hangs, refuses, or loses its replies under each call, and then works again: the call ends within its bound, and
// says so. Nothing that nobody was told of stays locked for longer than its time.
func TestEveryCallEndsOnAServerThatFailsAndLeavesNothingLocked(t *testing.T) {
	own := webdav.LockDetails{Root: "/a", Duration: -1, ZeroDepth: true}
	calls := map[string]func(s *webdavlock.LockSystem, token string) (release func(), err error){
		"Create": func(s *webdavlock.LockSystem, _ string) (func(), error) {
			d := details("/a", true)
			d.Duration = -1 // without end
			_, err := s.Create(time.Now(), d)
			return nil, err
		},
		"Create, the handler's own": func(s *webdavlock.LockSystem, _ string) (func(), error) {
			_, err := s.Create(time.Now(), own)
			return nil, err
		},
		"Refresh": func(s *webdavlock.LockSystem, token string) (func(), error) {
			_, err := s.Refresh(time.Now(), token, time.Minute)
			return nil, err
		},
		"Confirm": func(s *webdavlock.LockSystem, token string) (func(), error) {
			return s.Confirm(time.Now(), "/a", "", webdav.Condition{Token: token})
		},
		"Unlock":                    func(s *webdavlock.LockSystem, token string) (func(), error) { return nil, s.Unlock(time.Now(), token) },
		"Unlock, the handler's own": func(s *webdavlock.LockSystem, token string) (func(), error) { return nil, s.Unlock(time.Now(), token) },
	}
	for call, made := range calls {
		for fault, on := range map[string]failing{"hangs": losing(false), "loses replies": losing(true), "refuses": refusing} {
			t.Run(call+", "+fault, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					one, other, fails := on(t)
					system := func(c *mongo.Client) *webdavlock.LockSystem {
						storage, err := pathlock.OnMongo(c.Database("any").Collection("paths"))
						require.NoError(t, err)
						return newLocks(t, storage, webdavlock.WithLogger(slog.New(slog.DiscardHandler)))
					}
					here, there := system(one), system(other)
					token := ""
					var err error
					switch call {
					case "Refresh", "Confirm", "Unlock":
						d := details("/a", true)
						d.Duration = time.Minute
						token, err = here.Create(time.Now(), d)
					case "Unlock, the handler's own":
						token, err = here.Create(time.Now(), own)
					}
					require.NoError(t, err)
					fails(true)
					began := time.Now()
					release, err := made(here, token)
					t.Log(time.Since(began), err)
					assert.Less(t, time.Since(began), 25*time.Second)
					if require.Error(t, err); fault != "refuses" {
						assert.ErrorIs(t, err, context.DeadlineExceeded)
					}
					for _, known := range []error{webdav.ErrLocked, webdav.ErrNoSuchLock, webdav.ErrConfirmationFailed} {
						assert.NotErrorIs(t, err, known, "nothing is known")
					}
					if release != nil {
						release()
					}
					time.Sleep(10 * time.Second) // virtual: what the fault has left is cleaned up or runs out
					fails(false)
					time.Sleep(time.Minute) // virtual: longer than any lease
					_, err = there.Create(time.Now(), details("/a", true))
					assert.NoError(t, err, "it stays locked")
					require.NoError(t, here.Close())
					require.NoError(t, there.Close())
				})
			})
		}
	}
}
