package pathlock

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// An Option changes a Tree. It is given to New.
type Option interface{ apply(*Tree) error }

type option func(*Tree) error

func (o option) apply(t *Tree) error { return o(t) }

// apply gives each option the value that it changes, and joins their errors.
func apply[V any, O interface {
	comparable
	apply(*V) error
}](kind string, to *V, opts []O) error {
	var none O
	var errs []error
	for _, o := range opts {
		if o == none {
			errs = append(errs, fmt.Errorf("pathlock: a nil %s", kind))
			continue
		}
		errs = append(errs, o.apply(to))
	}
	return errors.Join(errs...)
}

// WithLimits bounds the timeouts of locks. By default a lock lasts for the first wish that is not
// Infinite, and without a wish for ten minutes.
func WithLimits(l Limits) Option {
	return option(func(t *Tree) error {
		t.limits = l.filled()
		return l.check()
	})
}

// WithLogger sets where the tree logs that a Hold was lost and that an index cannot be made, by
// default slog.Default(). slog.DiscardHandler turns logging off.
func WithLogger(l *slog.Logger) Option {
	return option(func(t *Tree) error { t.logger = l; return notNil("WithLogger", l == nil) })
}

// WithOwner names the owner of locks whose Request names none. By default they have none.
func WithOwner(name string) Option {
	return option(func(t *Tree) error {
		t.owner = []byte(name)
		return Request{Owner: t.owner, Mode: Exclusive, Depth: Zero}.check()
	})
}

// WithMargin sets how long a Hold ends before the storage may grant its path again. That is from 0
// to half of its timeout; by default the smaller of 1 s and a tenth of it.
func WithMargin(d time.Duration) Option {
	return option(func(t *Tree) error {
		if d < 0 {
			return fmt.Errorf("pathlock: WithMargin(%v): must not be negative", d)
		}
		t.margin = d
		return nil
	})
}

// WithAlias sets a function that maps each path to the one it stands for: for trees that ignore
// case, have links, or show one part in two places. It gets paths in their clean form. It has
// to return the same in every process at all times, and to leave its own results unchanged. If
// it fails, the call fails.
func WithAlias(alias func(path string) (string, error)) Option {
	return option(func(t *Tree) error {
		t.alias = alias
		return notNil("WithAlias", alias == nil)
	})
}

func notNil(option string, isNil bool) error {
	if isNil {
		return fmt.Errorf("pathlock: %s(nil): must not be nil", option)
	}
	return nil
}
