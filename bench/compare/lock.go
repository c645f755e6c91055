package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"go.etcd.io/etcd/api/v3/version"
	olderevent "go.mongodb.org/mongo-driver/event"
	"go.mongodb.org/mongo-driver/v2/event"
	"google.golang.org/grpc/stats"
)

// A locks is one process's access to one kind of lock. acquire waits for the key and returns a
// function that releases it. Calls with one key exclude each other, also those of one process.
type locks struct {
	acquire func(ctx context.Context, key string) (release func() error, err error)
	close   func() error
}

// A place is where a contender's server is.
type place struct {
	Address  string // host:port, or a URI of MongoDB
	Database string // of MongoDB
}

// A contender is one kind of lock on one server.
type contender struct {
	name, server string
	short        string // for -locks, and what is printed while it runs
	polls        bool   // a waiter asks again and again; else it is woken
	start        func(ctx context.Context) (place, func() error, error)
	// open makes connections of its own, as another process would.
	open func(ctx context.Context, at place, asked *requests) (locks, error)
}

const (
	usualTTL  = 30 * time.Second // where a library asks its caller
	pollPause = 100 * time.Millisecond
)

const onDisk, inMemory = "Redis, durable", "Redis as installed"

// contenders are in the order of the table.
var contenders = []contender{
	{name: "**mongolock**", server: mongoServer(), short: "mongolock", start: startMongo, open: openMongolock},
	{name: "upsert and delete by hand", server: mongoServer(), short: "by-hand", polls: true, start: startMongo, open: openByHand},
	{name: "square/mongo-lock", server: mongoServer(), short: "square", polls: true, start: startMongo, open: openSquare},
	{name: "etcd's concurrency.Mutex", server: "etcd " + version.Version, short: "etcd", start: startEtcd, open: openEtcd},
	{name: "PostgreSQL's advisory locks", server: "PostgreSQL", short: "postgres", start: startPostgres, open: openPostgres},
	{name: "rueidislock", server: onDisk, short: "rueidislock-always", start: startRedis("--appendonly", "yes", "--appendfsync", "always"), open: openRueidislock},
	{name: "redislock", server: onDisk, short: "redislock-always", polls: true, start: startRedis("--appendonly", "yes", "--appendfsync", "always"), open: openRedislock},
	{name: "redsync", server: onDisk, short: "redsync-always", polls: true, start: startRedis("--appendonly", "yes", "--appendfsync", "always"), open: openRedsync},
	{name: "rueidislock", server: inMemory, short: "rueidislock", start: startRedis("--appendonly", "no"), open: openRueidislock},
	{name: "redislock", server: inMemory, short: "redislock", polls: true, start: startRedis("--appendonly", "no"), open: openRedislock},
	{name: "redsync", server: inMemory, short: "redsync", polls: true, start: startRedis("--appendonly", "no"), open: openRedsync},
}

// mongoServer is the kind that devmongo started.
func mongoServer() string {
	if kind := os.Getenv("MONGOLOCK_KIND"); kind != "secantus" {
		return cmp.Or(kind, "MongoDB")
	}
	return "SecantusDB"
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

// freeAddress returns an address on which a server can listen.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// startDaemon starts a server with a directory of its own, and waits until it accepts connections
// at its address.
func startDaemon(ctx context.Context, address string, command func(dir string) *exec.Cmd) (place, func() error, error) {
	dir, err := os.MkdirTemp("", "compare-server-")
	if err != nil {
		return place{}, nil, err
	}
	cmd := command(dir)
	stop := func() error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return os.RemoveAll(dir)
	}
	if err := cmd.Start(); err != nil {
		return place{}, nil, errors.Join(err, os.RemoveAll(dir))
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && ctx.Err() == nil; {
		if conn, err := new(net.Dialer).DialContext(ctx, "tcp", address); err == nil {
			return place{Address: address}, stop, conn.Close()
		}
		<-time.After(20 * time.Millisecond)
	}
	return place{}, nil, errors.Join(fmt.Errorf("%s does not answer at %s", cmd.Path, address), stop())
}

// requests counts the commands that the clients of one contender send to its server, by the
// hooks of their drivers. Commands that a driver sends on its own to watch the server are not
// counted.
type requests struct{ atomic.Int64 }

func (r *requests) ofMongo() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) { r.Add(1) }}
}

func (r *requests) ofOlderMongo() *olderevent.CommandMonitor {
	return &olderevent.CommandMonitor{Started: func(context.Context, *olderevent.CommandStartedEvent) { r.Add(1) }}
}

// For go-redis.

func (r *requests) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *requests) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { r.Add(1); return next(ctx, cmd) }
}

func (r *requests) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error { r.Add(int64(len(all))); return next(ctx, all) }
}

// For gRPC: each message that is sent.

func (r *requests) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (r *requests) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (r *requests) HandleConn(context.Context, stats.ConnStats)                       {}

func (r *requests) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, sent := s.(*stats.OutPayload); sent {
		r.Add(1)
	}
}

// ofRueidis is a rueidis client whose commands are counted. A lock sends them by Do alone.
type ofRueidis struct {
	rueidis.Client
	asked *requests
}

func (r ofRueidis) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	r.asked.Add(1)
	return r.Client.Do(ctx, cmd)
}
