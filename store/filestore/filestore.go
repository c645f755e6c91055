// Package filestore keeps locks in files, for the processes of one host: a
// [store.Store] without a server.
//
//	s, err := filestore.Open("/var/lib/app/locks")
//	…
//	client, err := mongolock.NewWithStore(s)
//
// Each key that is held is a file; a free one is none. A call takes the file's lock
// (flock, which the kernel takes back from a process that dies), reads it, and puts a new
// one in its place: written beside it, synced, renamed, and the directory synced, before
// the call answers. A process that is killed at any instant leaves the old content or
// the new; what was acknowledged stays, also if the host itself goes down.
//
// The clock is the host's, for all processes the same. It may be slewed; it must not be
// stepped forward by more than the margin of the leases. Set back, it makes them last
// longer. After a reboot leases last to their TTL as after a crash.
//
// There is no feed: who waits polls. The directory is this package's alone, and on a
// local file system: over a network neither flock nor sync can be relied on. A file in a
// key's place that cannot be read, or is not of this package, answers store.ErrForeign,
// and is never overwritten.
package filestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/store"
)

// A Store is a directory of locks. It is safe for concurrent use. Open makes one.
type Store struct {
	files *hostfile.Dir
	clock func() time.Time
}

// An Option is given to Open.
type Option func(*Store) error

// WithClock sets another clock than the host's, for tests. All processes of a directory
// must have the same.
func WithClock(now func() time.Time) Option {
	return func(s *Store) error {
		if now == nil {
			return errors.New("filestore: WithClock: the clock is nil")
		}
		s.clock = now
		return nil
	}
}

// Open opens a directory of locks, and makes it if need be. On systems without flock it
// answers an error that matches errors.ErrUnsupported.
func Open(dir string, opts ...Option) (*Store, error) {
	s := &Store{clock: time.Now}
	for _, opt := range opts {
		if err := opt(s); err != nil {
			return nil, err
		}
	}
	files, err := hostfile.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("filestore: Open: %w", err)
	}
	s.files = files
	return s, nil
}

// Close lets go of the directory. Close the clients first.
func (s *Store) Close() error { return s.files.Close() }

// Acquire claims a key.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (g store.Grant, err error) {
	if err := refuse(ctx, c.Ref); err != nil {
		return g, err
	}
	err = s.edit(ctx, c.Key, func(rec *record, now time.Time) (change, error) {
		if refusal := rec.refuse(now, c); refusal != nil {
			if rec.want(now, c) {
				return write, refusal
			}
			return leave, refusal
		}
		rec.admit(now, c)
		g, err = s.grant(ctx, rec, now, c)
		return write, err
	})
	if err != nil {
		return store.Grant{}, err
	}
	return g, nil
}

// Renew answers each entry of the batch in its place.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	answers := make([]store.Renewed, len(batch))
	for i, r := range batch {
		if answers[i].Err = refuse(ctx, r.Ref); answers[i].Err != nil {
			continue
		}
		answers[i].Err = s.edit(ctx, r.Key, func(rec *record, now time.Time) (change, error) {
			h, err := rec.renewable(r.Ref, now)
			if err != nil {
				return leave, err
			}
			h.ExpireAt = later(h.ExpireAt, now.Add(r.TTL))
			answers[i].Left = honoured(r.TTL)
			return write, nil
		})
		if answers[i].Err != nil {
			answers[i].Left = 0
		}
	}
	return answers
}

// Release removes a holder, or with keep leaves it in place, ended, until keep after
// its grant.
func (s *Store) Release(ctx context.Context, r store.Ref, keep time.Duration) (wanted bool, err error) {
	if err := refuse(ctx, r); err != nil {
		return false, err
	}
	err = s.edit(ctx, r.Key, func(rec *record, now time.Time) (change, error) {
		h := rec.holder(r.ID)
		if h == nil {
			return leave, store.ErrGone
		}
		wanted = rec.wanted(now)
		if until := h.Since.Add(keep); keep > 0 && until.After(now) {
			h.Released, h.ExpireAt = true, until
			return write, nil
		}
		return rec.drop(now, r.ID), nil
	})
	return wanted && err == nil, err
}

// Transfer puts a new claim in the place of a live holder. A word that somebody left
// stays.
func (s *Store) Transfer(ctx context.Context, from store.Ref, to store.Claim) (g store.Grant, err error) {
	if err := ended(ctx); err != nil {
		return g, err
	}
	if from.Mode != store.Exclusive || to.Mode != store.Exclusive {
		return g, fmt.Errorf("filestore: transfer: %w: only an exclusive holder has a place to give (%w)", errors.ErrUnsupported, store.ErrNotApplied)
	}
	if from.Key != to.Key {
		return g, fmt.Errorf("filestore: %w: transfer of %q to another key, %q", store.ErrNotApplied, from.Key, to.Key)
	}
	err = s.edit(ctx, to.Key, func(rec *record, now time.Time) (change, error) {
		if _, err := rec.renewable(from, now); err != nil {
			return leave, err
		}
		rec.Holders = nil
		rec.add(now, to)
		g, err = s.grant(ctx, rec, now, to)
		return write, err
	})
	if err != nil {
		return store.Grant{}, err
	}
	return g, nil
}

// Undo removes what a claim of unknown outcome may have left. It is always settled: a
// call that has answered does nothing any more.
func (s *Store) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := refuse(ctx, claim); err != nil {
		return false, err
	}
	err = s.edit(ctx, claim.Key, func(rec *record, now time.Time) (change, error) {
		switch {
		case rec.holder(claim.ID) != nil:
			return rec.drop(now, claim.ID), nil
		case from != nil && rec.holder(from.ID) != nil:
			return rec.drop(now, from.ID), nil
		}
		return leave, nil
	})
	return err == nil || errors.Is(err, store.ErrForeign), err
}

// Withdraw takes back the word of a writer who gave up. A file that was left for him
// alone goes with it.
func (s *Store) Withdraw(ctx context.Context, key string, until time.Time) error {
	if err := ended(ctx); err != nil {
		return err
	}
	err := s.edit(ctx, key, func(rec *record, _ time.Time) (change, error) {
		if !rec.ExclusiveWantedUntil.Equal(until) || until.IsZero() {
			return leave, nil
		}
		rec.ExclusiveWantedUntil = time.Time{}
		if len(rec.Holders) == 0 {
			return remove, nil
		}
		return write, nil
	})
	if errors.Is(err, store.ErrForeign) {
		return nil
	}
	return err
}

// Break marks a holder as broken and, with now, removes it.
func (s *Store) Break(ctx context.Context, r store.Ref, reason string, atOnce bool) error {
	if err := refuse(ctx, r); err != nil {
		return err
	}
	return s.edit(ctx, r.Key, func(rec *record, now time.Time) (change, error) {
		h := rec.holder(r.ID)
		switch {
		case h == nil:
			return leave, store.ErrGone
		case atOnce:
			return rec.drop(now, r.ID), nil
		}
		h.Broken, h.Reason = true, reason
		return write, nil
	})
}

// grant is the answer to c, which is in rec by now. Its token is drawn, and safe on
// the disk, before the record is written: a crash in between costs a number.
func (s *Store) grant(ctx context.Context, rec *record, now time.Time, c store.Claim) (store.Grant, error) {
	token, err := s.draw(ctx, now)
	return store.Grant{Token: token, Left: honoured(c.TTL), Since: now, Wanted: rec.wanted(now)}, err
}

// honoured is how long a holder may trust a TTL: the host's clock may be slewed by a
// thousandth against the monotonic one.
func honoured(ttl time.Duration) time.Duration { return ttl - ttl/1000 }

// refuse turns a call away before it does anything.
func refuse(ctx context.Context, r store.Ref) error {
	if err := ended(ctx); err != nil {
		return err
	}
	switch r.Mode {
	case store.Exclusive, store.Shared, store.Permits:
		return nil
	}
	return fmt.Errorf("filestore: mode %q: %w (%w)", r.Mode, errors.ErrUnsupported, store.ErrNotApplied)
}

// ended reports a context that is over, as a fault that left no trace.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("filestore: %w (%w)", err, store.ErrNotApplied)
	}
	return nil
}
