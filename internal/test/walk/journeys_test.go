package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/internal/test/walk/recorder"
)

// A client that has used its lock before is shown, as what it does once would hide what it always does.
func TestJourneys(t *testing.T) {
	out := cmp.Or(os.Getenv(outVariable), t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		link := memmongo.New().Link()
		conn, err := link.Connect()
		require.NoError(t, err)
		coll := conn.Database("d").Collection("locks")
		connect := func() *mongolock.Client {
			c, err := mongolock.New(coll, mongolock.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			return c
		}
		acquire := func(c *mongolock.Client, key string, opts ...mongolock.AcquireOption) *mongolock.Lease {
			l, err := c.Acquire(t.Context(), key, opts...)
			require.NoError(t, err)
			synctest.Wait()
			return l
		}
		record := func(journey string, walk func()) {
			recorder.Start()
			walk()
			synctest.Wait()
			require.NoError(t, recorder.Stop(filepath.Join(out, journey)))
		}
		a, b := connect(), connect()
		for _, c := range []*mongolock.Client{a, b} {
			require.NoError(t, acquire(c, "warm").Release())
		}
		time.Sleep(time.Second)
		synctest.Wait()

		var l *mongolock.Lease
		record("free", func() { l = acquire(a, "k") })
		record("release", func() { require.NoError(t, l.Release()) })

		l = acquire(a, "k")
		granted := make(chan *mongolock.Lease, 1)
		record("held", func() {
			go func() {
				l, err := b.Acquire(context.WithoutCancel(t.Context()), "k")
				if err != nil {
					panic(err)
				}
				granted <- l
			}()
			time.Sleep(2 * time.Second)
		})
		record("wakes", func() {
			require.NoError(t, l.Release())
			l = <-granted
		})
		require.NoError(t, l.Release())

		for i := range 5 {
			acquire(a, fmt.Sprint("many-", i))
		}
		record("renew", func() { time.Sleep(12 * time.Second) })
		acquire(b, "lost", mongolock.NoRenewal())
		record("loss", func() { time.Sleep(31 * time.Second) })
		record("close", func() { require.NoError(t, a.Close()) })

		require.NoError(t, b.Close())
		_ = conn.Disconnect(context.Background())
		link.Close()
		time.Sleep(time.Minute)
	})
}
