// Package jobstest has the store over which tests lose, fail and hold up what a scheduler asks of a store.
package jobstest

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// A Store passes calls on to another, each through one function. That one is not embedded, so that a
// method added to jobs.Store cannot be forgotten here.
type Store struct {
	To jobs.Store

	// Through makes a call by send, or does not. The caller gets the error that it returns.
	Through func(ctx context.Context, c Call, send func() error) error
}

// A Call is one call as Through sees it.
type Call struct {
	Op    string     // the method, in lower case
	Job   string     // that it may change
	Run   string     // the ID of the run that it renews or ends
	Claim jobs.Claim // of a Claim
}

func (s *Store) Claim(ctx context.Context, c jobs.Claim) (won jobs.Claimed, err error) {
	err = s.Through(ctx, Call{Op: "claim", Job: c.Job, Claim: c}, func() (err error) { won, err = s.To.Claim(ctx, c); return err })
	return won, err
}

func (s *Store) Renew(ctx context.Context, r jobs.Ref, ttl time.Duration, begun bool) (left time.Duration, err error) {
	err = s.Through(ctx, Call{Op: "renew", Job: r.Job, Run: r.ID}, func() (err error) { left, err = s.To.Renew(ctx, r, ttl, begun); return err })
	return left, err
}

func (s *Store) End(ctx context.Context, e jobs.End) error {
	return s.Through(ctx, Call{Op: "end", Job: e.Job, Run: e.ID}, func() error { return s.To.End(ctx, e) })
}

func (s *Store) Undo(ctx context.Context, c jobs.Claim) (settled bool, err error) {
	err = s.Through(ctx, Call{Op: "undo", Job: c.Job}, func() (err error) { settled, err = s.To.Undo(ctx, c); return err })
	return settled && err == nil, err
}

func (s *Store) Read(ctx context.Context, names []string, detail jobs.Detail) (all []jobs.State, err error) {
	err = s.Through(ctx, Call{Op: "read"}, func() (err error) { all, err = s.To.Read(ctx, names, detail); return err })
	return all, err
}

func (s *Store) Register(ctx context.Context, name, plan string, now time.Time) (seen jobs.State, err error) {
	err = s.Through(ctx, Call{Op: "register", Job: name}, func() (err error) { seen, err = s.To.Register(ctx, name, plan, now); return err })
	return seen, err
}

func (s *Store) Plan(ctx context.Context, seen jobs.State, plans []jobs.Span) error {
	return s.Through(ctx, Call{Op: "plan", Job: seen.Job}, func() error { return s.To.Plan(ctx, seen, plans) })
}

func (s *Store) Change(ctx context.Context, name string, change jobs.Change) (changed bool, err error) {
	err = s.Through(ctx, Call{Op: "change", Job: name}, func() (err error) { changed, err = s.To.Change(ctx, name, change); return err })
	return changed, err
}

func (s *Store) Changed(ctx context.Context, names []string, since time.Time) (changed map[string]time.Time, err error) {
	err = s.Through(ctx, Call{Op: "changed"}, func() (err error) { changed, err = s.To.Changed(ctx, names, since); return err })
	return changed, err
}

func (s *Store) Names(ctx context.Context) (names []string, err error) {
	err = s.Through(ctx, Call{Op: "names"}, func() (err error) { names, err = s.To.Names(ctx); return err })
	return names, err
}

// Now returns the time of the store, which needs no call.
func (s *Store) Now() time.Time { return s.To.Now() }
