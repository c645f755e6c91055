package mongobase

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/mongo/mongoerr"
)

// A joint is what the attempts of one bulk share: its session, and the clean-up of those whose
// outcome is unknown. One later write in the session makes the server refuse the writes of the
// bulk that are still on their way.
type joint struct {
	cleanUp func(context.Context) error // sends it, in the session

	mu      sync.Mutex // protects the rest; never held across a command
	open    int        // attempts that have not ended
	settled bool       // the clean-up was acknowledged
	asked   *question  // the clean-up that is under way
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
	first.joint = &joint{cleanUp: cleanUp, open: len(ids)}
	all := []*Attempt{first}
	for _, id := range ids[1:] {
		next := *first
		next.id = id
		all = append(all, &next)
	}
	return all, nil
}

// left records that one of the attempts has ended, and reports whether it was the last.
func (j *joint) left() (last bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open--
	return j.open == 0
}

// undo cleans up for all attempts whose outcome is unknown, unless that was done. Callers that
// ask meanwhile share the answer: a session is not safe for concurrent use.
func (j *joint) undo(ctx context.Context, _ *Attempt) (found bool, err error) {
	j.mu.Lock()
	q := j.asked
	switch {
	case j.settled:
		j.mu.Unlock()
		return true, nil
	case q != nil:
		j.mu.Unlock()
		select {
		case <-q.answered:
			return q.err == nil, q.err
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	q = &question{answered: make(chan struct{})}
	j.asked = q
	j.mu.Unlock()
	q.err = j.cleanUp(ctx)
	j.mu.Lock()
	j.settled, j.asked = q.err == nil, nil
	j.mu.Unlock()
	close(q.answered)
	return q.err == nil, q.err
}
