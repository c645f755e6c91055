// Package filestore keeps locks in files, for the processes of one host: a
// [store.Store] without a server.
//
//	s, err := filestore.Open("/var/lib/app/locks")
//	…
//	client, err := mongolock.NewWithStore(s)
//
// Give it a directory of its own, on a local file system: network file systems guarantee neither
// flock nor fsync. Open makes the directory with mode 0700 and its files have mode 0600, so all
// processes that share it run as one user (or as root). For processes of several users, run one
// that holds the locks for the others, or use a server. There is no feed: waiters poll.
//
// Each key that is held or waited for has a file; others have none. A call takes the file's lock
// (flock, which the kernel takes back from a process that dies), reads the file, and replaces it:
// the new content is written beside it, synced and renamed, and the directory is synced, before the
// call answers. A process that is killed at any instant leaves the old content or the new. An
// acknowledged write stays, even if the host goes down. A file in a key's place that was not
// written by this package answers store.ErrForeign, and is never overwritten.
//
// # The clock
//
// On Linux and macOS expiry is judged by a clock that counts from the start of the host, including
// the time for which it was suspended. All processes of a host share it, leases are counted by it
// too, and it cannot be set. So steps of the wall clock end no lease early or late, and a suspend
// counts for holder and store alike.
//
//   - After a restart of the host a lease keeps the time that it had left, counted from the first
//     claim of its key, but ends at the latest a minute after its date by the wall clock. So a lease
//     that outlives the host, as a ticket does, ends early if that clock was meanwhile set forward by
//     more than a minute.
//   - Containers of one host may share a directory, each with a time namespace of its own. If
//     each also has a boot ID of its own (systemd-nspawn gives one), leases are taken over as
//     after a restart.
//   - On other systems the wall clock judges. If it is stepped forward there by more than a lease's
//     margin, another process can get the key while the holder still trusts its lease, until its next
//     renewal. Only a token that the resource checks (package fence) stops the holder's writes in that
//     time. A step back moves the dates of records with it.
//
// docs/internals/decisions.md has the reasons.
package filestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/internal/hostclock"
	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/store"
)

// A Store keeps locks in a directory. It is safe for concurrent use. Open makes one.
type Store struct {
	files *hostfile.Dir
	clock timepiece
}

// Open opens a directory of locks, and makes it if it does not exist. On systems
// without flock it returns an error that matches errors.ErrUnsupported.
func Open(dir string) (*Store, error) {
	clock, err := hostclock.New()
	if err != nil {
		return nil, fmt.Errorf("filestore: Open: the host's clock: %w", err)
	}
	files, err := hostfile.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("filestore: Open: %w", err)
	}
	return &Store{files, timepiece{clock, time.Now}}, nil
}

// Close closes the directory. Close the clients first.
func (s *Store) Close() error { return s.files.Close() }

// Acquire claims a key.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (g store.Grant, err error) {
	if err := refuse(ctx, c.Ref); err != nil {
		return g, err
	}
	err = s.edit(ctx, c.Key, func(rec *record, now time.Time) (change, error) {
		if what, refusal := rec.refuse(now, c); refusal != nil {
			return what, refusal
		}
		rec.admit(now, c)
		g, err = s.grant(ctx, rec, now, c)
		return admit, err
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
			h.ExpireAt, h.Moved = later(h.ExpireAt, now.Add(r.TTL)), 0
			answers[i].Left, answers[i].Line = honoured(r.TTL), rec.places()
			return write, nil
		})
		if err := answers[i].Err; err != nil {
			answers[i] = store.Renewed{Err: err}
		}
	}
	return answers
}

// Release removes a holder. With Keep, the holder is marked as released and stays until Keep after its
// grant.
func (s *Store) Release(ctx context.Context, e store.Ending) (answer store.Ended, err error) {
	if err := refuse(ctx, e.Ref); err != nil {
		return store.Ended{}, err
	}
	err = s.edit(ctx, e.Key, func(rec *record, now time.Time) (change, error) {
		h := rec.holder(e.ID)
		if h == nil {
			return leave, store.ErrGone
		}
		what := write
		if until := h.Since.Add(e.Keep); e.Keep > 0 && until.After(now) {
			h.Released, h.ExpireAt = true, until
		} else {
			rec.Used = e.Used
			what = rec.drop(e.ID, now)
		}
		answer = store.Ended{Line: rec.status(now).Waiting(""), Left: rec.live(now)}
		return what, nil
	})
	if err != nil {
		return store.Ended{}, err
	}
	return answer, nil
}

// Leave takes a place out of the line. It removes the file if the place was all that the file
// held.
func (s *Store) Leave(ctx context.Context, key string, p store.Place) (status store.Status, err error) {
	if err := ended(ctx); err != nil {
		return store.Status{}, err
	}
	err = s.edit(ctx, key, func(rec *record, now time.Time) (change, error) {
		what := rec.leave(p)
		status = rec.status(now)
		return what, nil
	})
	if err != nil {
		return store.Status{}, err
	}
	return status, nil
}

// Transfer puts a new claim in the place of a live holder. The line stays as it is, but for the
// claim's own place.
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
		rec.leave(to.Place)
		g, err = s.grant(ctx, rec, now, to)
		return write, err
	})
	if err != nil {
		return store.Grant{}, err
	}
	return g, nil
}

// Undo removes what a claim of unknown outcome may have left. It is always settled: a
// call that has returned changes nothing any more.
func (s *Store) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	if err := refuse(ctx, claim); err != nil {
		return false, err
	}
	err = s.edit(ctx, claim.Key, func(rec *record, now time.Time) (change, error) {
		switch {
		case rec.holder(claim.ID) != nil:
			return rec.drop(claim.ID, now), nil
		case from != nil && rec.holder(from.ID) != nil:
			return rec.drop(from.ID, now), nil
		}
		return leave, nil
	})
	return err == nil || errors.Is(err, store.ErrForeign), err
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
			return rec.drop(r.ID, now), nil
		}
		h.Broken, h.Reason = true, reason
		return write, nil
	})
}

// grant answers c, which has been added to rec. The token is drawn, and synced to the disk,
// before the record is written: a crash in between skips a number.
func (s *Store) grant(ctx context.Context, rec *record, now time.Time, c store.Claim) (store.Grant, error) {
	token, err := s.draw(ctx, now)
	return store.Grant{Token: token, Left: honoured(c.TTL), Since: now, Line: rec.places()}, err
}

// honoured returns how long a holder may trust a TTL: where the wall clock judges expiry, that
// may be slewed by a thousandth against the monotonic clock.
func honoured(ttl time.Duration) time.Duration { return ttl - ttl/1000 }

// refuse checks context and mode before a call does anything.
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

// ended reports a context that has ended, as a fault that left no trace.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("filestore: %w (%w)", err, store.ErrNotApplied)
	}
	return nil
}
