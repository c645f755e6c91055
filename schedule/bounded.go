package schedule

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// callBound bounds a call that a Scheduler makes for itself. Without it a server that answers the
// driver's heartbeat, but not a command, would hold up the loop and all workers for good.
const callBound = 10 * time.Second

// A boundedStore bounds those calls. Leases have bounds of their own, and the calls that a caller makes are
// bounded by their contexts.
type boundedStore struct{ jobs.Store }

func (b boundedStore) Read(ctx context.Context, names []string, detail jobs.Detail) ([]jobs.State, error) {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	return b.Store.Read(ctx, names, detail)
}

func (b boundedStore) Register(ctx context.Context, name, plan string, now time.Time) (jobs.State, error) {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	return b.Store.Register(ctx, name, plan, now)
}

func (b boundedStore) Plan(ctx context.Context, seen jobs.State, plans []jobs.Span) error {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	return b.Store.Plan(ctx, seen, plans)
}

func (b boundedStore) Changed(ctx context.Context, names []string, since time.Time) (map[string]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	return b.Store.Changed(ctx, names, since)
}
