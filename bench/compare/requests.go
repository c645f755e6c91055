package main

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	olderevent "go.mongodb.org/mongo-driver/event"
	"go.mongodb.org/mongo-driver/v2/event"
	"google.golang.org/grpc/stats"
)

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
