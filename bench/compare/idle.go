package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/event"
	"google.golang.org/grpc/stats"
)

const (
	idleSettles = 3 * time.Second
	idleLasts   = 24 * time.Second // with what goes before less than redislock's 30 s, which nobody refreshes
)

// requests counts what the clients of one contender ask its server, by the hooks of their
// drivers. What a driver asks on its own to watch the server is not seen by them.
type requests struct{ atomic.Int64 }

func (r *requests) ofMongo() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) { r.Add(1) }}
}

func (r *requests) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *requests) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { r.Add(1); return next(ctx, cmd) }
}

func (r *requests) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error { r.Add(int64(len(all))); return next(ctx, all) }
}

func (r *requests) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (r *requests) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (r *requests) HandleConn(context.Context, stats.ConnStats)                       {}

func (r *requests) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, sent := s.(*stats.OutPayload); sent {
		r.Add(1)
	}
}

// measureIdle counts what two processes ask their server while one of them has a key and the
// other waits for it.
func measureIdle(ctx context.Context, answers []*answer) error {
	fmt.Fprintf(os.Stderr, "compare: %v with a holder and a waiter each\n", idleSettles+idleLasts)
	errs := make([]error, len(answers))
	var all sync.WaitGroup
	for i, a := range answers {
		all.Go(func() { errs[i] = a.measureIdle(ctx) })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("%s: %w", answers[i].name, err)
		}
	}
	return nil
}

func (a *answer) measureIdle(ctx context.Context) error {
	here, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer here.close() //nolint:errcheck // nothing is held any more
	there, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer there.close() //nolint:errcheck // nothing is held any more
	release, err := here.acquire(ctx, "idle")
	if err != nil {
		return err
	}
	type grant struct {
		release func() error
		err     error
	}
	granted := make(chan grant, 1)
	go func() {
		release, err := there.acquire(ctx, "idle")
		granted <- grant{release, err}
	}()
	<-time.After(idleSettles)
	before, began := a.asked.Load(), time.Now()
	select {
	case <-time.After(idleLasts):
	case g := <-granted:
		return fmt.Errorf("the waiter did not wait: %w", g.err)
	}
	a.idle = float64(a.asked.Load()-before) / time.Since(began).Seconds()
	if err := release(); err != nil {
		return err
	}
	g := <-granted
	if g.err != nil {
		return g.err
	}
	return g.release()
}

func idleTableOf(answers []*answer) string {
	var b strings.Builder
	b.WriteString("| lock | server | requests a second of two processes: one holds a key, the other waits for it |\n|---|---|---|\n")
	for _, a := range answers {
		fmt.Fprintf(&b, "| %s | %s | %.2f |\n", a.name, a.server, a.idle)
	}
	fmt.Fprintf(&b, "\nCounted for %v.\n", idleLasts)
	return b.String()
}
