package main

import (
	"context"
	"errors"
	"time"
)

// A locks is one process's access to one kind of lock.
type locks interface {
	// acquire waits for the key and returns a function that releases it. Calls with one
	// key exclude each other, also those of one process.
	acquire(ctx context.Context, key string) (release func() error, err error)
	close() error
}

// A place is where a contender's server is. It is all that another process needs.
type place struct {
	Address  string // host:port, or a URI of MongoDB
	Database string // of MongoDB
}

// A setting is what a measurement asks of a process's access.
type setting struct {
	ttl  time.Duration // 0: the one that the contender's own documentation has, or 30 s
	over *link         // to the server; nil: nothing between
}

func (s setting) ttlOr(usual time.Duration) time.Duration {
	if s.ttl > 0 {
		return s.ttl
	}
	return usual
}

// A contender is one kind of lock on one server.
type contender struct {
	name, server string
	short        string // for -locks, and what is printed while it runs
	polls        bool   // a waiter asks again and again; else it is woken
	start        func(ctx context.Context) (place, func() error, error)
	// open makes connections of its own, as another process would.
	open func(ctx context.Context, at place, s setting, asked *requests) (locks, error)
}

const (
	usualTTL  = 30 * time.Second // where a library asks its caller
	pollPause = 100 * time.Millisecond
)

var (
	alwaysOnDisk = []string{"--appendonly", "yes", "--appendfsync", "always"}
	asInstalled  = []string{"--appendonly", "no"}
)

const (
	onDisk      = "Redis, `appendfsync always`"
	inMemory    = "Redis as installed: nothing on disk before the reply"
	journalled  = ", `majority`, journal on disk"
	askedPause  = ", asked every 100 ms"
	defaultWait = ", asked every 50 to 250 ms"
)

// contenders are in the order of the tables.
var contenders = []contender{
	{name: "**mongolock**", short: "mongolock", start: startMongo, open: openMongolock},
	{name: "upsert and delete by hand" + askedPause, short: "by-hand", polls: true, start: startMongo, open: openByHand},
	{name: "square/mongo-lock" + askedPause, short: "square", polls: true, start: startMongo, open: openSquare},
	{name: "etcd's concurrency.Mutex", short: "etcd", start: startEtcd, open: openEtcd},
	{name: "rueidislock", server: onDisk, short: "rueidislock-always", start: startRedis(alwaysOnDisk), open: openRueidislock},
	{name: "redislock" + askedPause, server: onDisk, short: "redislock-always", polls: true, start: startRedis(alwaysOnDisk), open: openRedislock},
	{name: "redsync" + defaultWait, server: onDisk, short: "redsync-always", polls: true, start: startRedis(alwaysOnDisk), open: openRedsync},
	{name: "rueidislock", server: inMemory, short: "rueidislock", start: startRedis(asInstalled), open: openRueidislock},
	{name: "redislock" + askedPause, server: inMemory, short: "redislock", polls: true, start: startRedis(asInstalled), open: openRedislock},
	{name: "redsync" + defaultWait, server: inMemory, short: "redsync", polls: true, start: startRedis(asInstalled), open: openRedsync},
}

// again calls try until it is not refused, with a pause between.
func again(ctx context.Context, refused error, try func() error) error {
	for {
		if err := try(); !errors.Is(err, refused) {
			return err
		}
		select {
		case <-time.After(pollPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
