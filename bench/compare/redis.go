package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func startRedis(settings ...string) func(ctx context.Context) (place, func() error, error) {
	return func(ctx context.Context) (place, func() error, error) {
		address, err := freeAddress()
		if err != nil {
			return place{}, nil, err
		}
		_, port, _ := strings.Cut(address, ":")
		return startDaemon(ctx, address, func(dir string) *exec.Cmd {
			return exec.CommandContext(ctx, "redis-server", append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", dir}, settings...)...)
		})
	}
}

func connectRedis(at place, asked *requests) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: at.Address})
	client.AddHook(asked)
	return client
}

// openRedislock opens github.com/bsm/redislock. Its default is not to retry; the pause is ours.
func openRedislock(_ context.Context, at place, asked *requests) (locks, error) {
	client := connectRedis(at, asked)
	locker := redislock.New(client)
	acquire := func(ctx context.Context, key string) (func() error, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // without a deadline it would wait for no longer than the TTL
		lock, err := locker.Obtain(ctx, key, usualTTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(pollPause)})
		if err != nil {
			cancel()
			return nil, err
		}
		return func() error { defer cancel(); return lock.Release(context.WithoutCancel(ctx)) }, nil
	}
	return locks{acquire, client.Close}, nil
}

// openRedsync opens github.com/go-redsync/redsync on one server: 32 tries, 50 to 250 ms apart,
// which are its defaults, and then again.
func openRedsync(_ context.Context, at place, asked *requests) (locks, error) {
	client := connectRedis(at, asked)
	sync := redsync.New(goredis.NewPool(client))
	acquire := func(ctx context.Context, key string) (func() error, error) {
		mutex := sync.NewMutex(key, redsync.WithExpiry(8*time.Second))
		for {
			err := mutex.LockContext(ctx)
			var taken *redsync.ErrTaken
			switch {
			case err == nil:
				return func() error {
					held, err := mutex.UnlockContext(context.WithoutCancel(ctx))
					if err == nil && !held {
						err = errors.New("redsync had lost its lock")
					}
					return err
				}, nil
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case !errors.Is(err, redsync.ErrFailed) && !errors.As(err, &taken):
				return nil, err
			}
		}
	}
	return locks{acquire, client.Close}, nil
}

// openRueidislock opens github.com/redis/rueidis/rueidislock, as its README sets it up for one
// server, but for TryNextAfter, which is 20 ms there. Where a reply takes longer than that it
// takes its claim back and waits for a notice of a change; its own change sends it none with
// NoLoopTracking, and so it stood still before a free key.
func openRueidislock(_ context.Context, at place, asked *requests) (locks, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{at.Address}}, KeyMajority: 1, NoLoopTracking: true, TryNextAfter: time.Second,
		ClientBuilder: func(opts rueidis.ClientOption) (rueidis.Client, error) {
			client, err := rueidis.NewClient(opts)
			if err != nil {
				return nil, err
			}
			return ofRueidis{client, asked}, nil
		},
	})
	if err != nil {
		return locks{}, fmt.Errorf("rueidislock: %w", err)
	}
	acquire := func(ctx context.Context, key string) (func() error, error) {
		_, cancel, err := locker.WithContext(ctx, key)
		return func() error { cancel(); return nil }, err
	}
	return locks{acquire, func() error { locker.Close(); return nil }}, nil
}
