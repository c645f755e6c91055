package mongobase

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
)

// A joint is what the attempts of one bulk share: its session, and the clean-up of those whose
// outcome is unknown. One later write in the session makes the server refuse the writes of the
// bulk that are still on their way.
type joint struct {
	cleanUp  func(context.Context) error // sends it, in the session
	cleaning Shared                      // one at a time: a session is not safe for concurrent use
	settled  atomic.Bool                 // the clean-up was acknowledged
	open     atomic.Int64                // attempts that have not ended
}

// BeginMany opens the attempts of claims that are sent as one bulk, in one session and so under
// one transaction number. cleanUp removes, on a context with that session, all of them whose
// outcome is unknown. BeginMany sends nothing yet. An error matches store.ErrNotApplied, and
// errors.ErrUnsupported where writes have no transaction numbers.
func (b *Base) BeginMany(ctx context.Context, ids []string, ttl time.Duration, cleanUp func(context.Context) error) ([]*Attempt, error) {
	first, err := b.Begin(ctx, ids[0], ttl)
	if err != nil {
		return nil, err
	}
	switch {
	case !b.Kind().Numbers:
		err = errors.ErrUnsupported
	case slices.ContainsFunc(ids, b.memory.wasUndone):
		err = errUndone
	}
	if err != nil {
		first.end()
		return nil, mongoerr.NotApplied(err)
	}
	first.joint = &joint{cleanUp: cleanUp}
	first.joint.open.Store(int64(len(ids)))
	all := []*Attempt{first}
	for _, id := range ids[1:] {
		next := *first
		next.id = id
		all = append(all, &next)
	}
	return all, nil
}

// undo cleans up for all attempts whose outcome is unknown, unless that was done.
func (j *joint) undo(ctx context.Context, _ *Attempt) (found bool, err error) {
	err = j.cleaning.Ask(ctx, func(ctx context.Context) error {
		if j.settled.Load() {
			return nil
		}
		if err := ctx.Err(); err != nil { // another caller may be asking
			return err
		}
		err := j.cleanUp(ctx)
		j.settled.Store(err == nil)
		return err
	})
	return err == nil, err
}
