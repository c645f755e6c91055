package pathlock

import (
	"bytes"
	"errors"
	"fmt"
)

// An Option changes a Tree. It is given to New.
type Option interface{ apply(*Tree) error }

// A ReleaseOption changes one Release.
type ReleaseOption interface{ apply(*release) error }

// An AffectedOption widens the part of the tree that Affected looks at.
type AffectedOption interface{ apply(*scope) error }

type (
	option         func(*Tree) error
	releaseOption  func(*release) error
	affectedOption func(*scope) error
)

func (o option) apply(t *Tree) error           { return o(t) }
func (o releaseOption) apply(r *release) error { return o(r) }
func (o affectedOption) apply(s *scope) error  { return o(s) }

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

// WithLimits bounds the timeouts of locks. It takes the place of WithPolicy.
func WithLimits(l Limits) Option {
	return option(func(t *Tree) error {
		t.policy = l.Pick
		return l.check()
	})
}

// WithPolicy sets the function that picks a lock's timeout from a client's wishes. The
// default is that of Limits{}: the first wish that is not Infinite, or ten minutes.
func WithPolicy(p Policy) Option {
	return option(func(t *Tree) error {
		if p == nil {
			return errors.New("pathlock: WithPolicy(nil): must not be nil")
		}
		t.policy = p
		return nil
	})
}

// WithAlias sets a function that maps each path to the one it stands for: for trees that ignore
// case, have links, or show one part in two places. It gets paths in their clean form. It has
// to return the same in every process at all times, and to leave its own results unchanged. If
// it fails, the call fails; but Release then goes by the token alone.
func WithAlias(alias func(path string) (string, error)) Option {
	return option(func(t *Tree) error {
		if alias == nil {
			return errors.New("pathlock: WithAlias(nil): must not be nil")
		}
		t.alias = alias
		return nil
	})
}

// A release says how Release was asked to end a lock.
type release struct {
	path     string // its clean form, aliases resolved
	owner    []byte
	askOwner bool
	force    bool
	anyPath  bool // it is not known which path is meant
}

// ByOwner makes Release refuse a lock that has another owner, compared byte for byte.
func ByOwner(owner []byte) ReleaseOption {
	return releaseOption(func(r *release) error {
		r.owner, r.askOwner = bytes.Clone(owner), true
		return nil
	})
}

// Force makes Release ignore the path and the owner: for operators.
func Force() ReleaseOption {
	return releaseOption(func(r *release) error { r.force = true; return nil })
}

// A scope says where affecting looks, in addition to the path itself.
type scope struct{ parents, children, exclusiveOnly bool }

// WithParents makes Affected return the locks above the path that reach it, too.
func WithParents() AffectedOption {
	return affectedOption(func(s *scope) error { s.parents = true; return nil })
}

// WithChildren makes Affected return the locks below the path, too.
func WithChildren() AffectedOption {
	return affectedOption(func(s *scope) error { s.children = true; return nil })
}
