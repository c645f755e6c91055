package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

// An Option changes a Candidate.
type Option interface{ apply(*config) error }

type config struct {
	acquire []mongolock.AcquireOption
	logger  *slog.Logger
	prepare func(context.Context) error // nil: nothing
	await   time.Duration               // 0: no successor is waited for
	yields  bool                        // it makes room for candidates of a higher priority
	rank    int                         // the priority
}

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

// With sets options of each term's lease: TTL, Note, MaxHold, MaxStall. They add to those of the client.
// Shared, OneOf, MinHold and MaxWait are refused by name: with the first two several processes would lead at
// the same time, with MinHold the key would stay taken after a leader resigned, and a candidate waits until
// it leads.
func With(opts ...mongolock.AcquireOption) Option {
	return option(func(c *config) error { c.acquire = append(c.acquire, opts...); return nil })
}

// WithLogger sets where the candidate logs, by default slog.Default().
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) error {
		if c.logger = l; l == nil {
			return errors.New("leader: WithLogger(nil): must not be nil")
		}
		return nil
	})
}

// Warm calls prepare each time before this process stands for election: to load what the work needs.
// Until it returns, this process is no candidate. If it fails, that is logged, and it is called
// again after a pause. With AwaitSuccessor a leader goes on meanwhile.
func Warm(prepare func(ctx context.Context) error) Option {
	return option(func(c *config) error {
		if c.prepare = prepare; prepare == nil {
			return errors.New("leader: Warm(nil): must not be nil")
		}
		return nil
	})
}

// AwaitSuccessor makes a leader that resigns, or whose ctx of Run ends, go on until another
// candidate waits, for at most limit. So a deploy that starts the new process before it stops the
// old one has a gap of some round trips, and none of them is the new one's start. Without a successor
// it goes on for the whole limit, which has to be shorter than the time that the process is given to
// end; so close the client after Run has returned. A candidate that died counts as one for 90 s.
func AwaitSuccessor(limit time.Duration) Option {
	return option(func(c *config) error {
		if c.await = limit; limit <= 0 {
			return fmt.Errorf("leader: AwaitSuccessor(%v): must be positive", limit)
		}
		return nil
	})
}

// newConfig checks all options together.
func newConfig(client *mongolock.Client, key string, opts []Option) (config, error) {
	c := config{logger: slog.Default()}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("leader: a nil Option"))
			continue
		}
		errs = append(errs, o.apply(&c))
	}
	if c.yields {
		c.acquire = append(c.acquire, mongolock.Yielding())
	}
	if c.rank > 0 {
		errs = append(errs, checkKey(client, preferredKey(key)))
	}
	own, _ := inside.TermsOf(nil, key, c.acquire) // without the client's defaults
	terms, err := inside.TermsOf(client, key, c.acquire)
	switch {
	case err != nil:
		err = fmt.Errorf("leader: With: %w", err)
	case terms.Mode == store.Shared:
		err = errors.New("leader: With(Shared()): several processes would lead at the same time")
	case terms.Mode != store.Exclusive:
		err = fmt.Errorf("leader: With(OneOf(%d)): several processes would lead at the same time", terms.Limit)
	}
	errs = append(errs, err)
	if terms.MinHold > 0 {
		errs = append(errs, fmt.Errorf("leader: With(MinHold(%v)): the key would stay taken after a leader resigned", terms.MinHold))
	}
	if own.MaxWait > 0 {
		errs = append(errs, fmt.Errorf("leader: With(MaxWait(%v)): a candidate waits until it leads; end its context to give up", own.MaxWait))
	}
	c.acquire = append(c.acquire, mongolock.MaxWait(forever))
	return c, errors.Join(errs...)
}
