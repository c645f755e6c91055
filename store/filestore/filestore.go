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
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/mongolock/mongolock/internal/hostclock"
	"github.com/mongolock/mongolock/internal/hostfile"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/record"
)

// A Store keeps locks in a directory. It is safe for concurrent use. Open makes one.
type Store struct {
	files *hostfile.Dir
	clock hostclock.Timepiece
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
	return &Store{files, hostclock.Timepiece{Host: clock, Wall: time.Now}}, nil
}

// Close closes the directory. Close the clients first.
func (s *Store) Close() error { return s.files.Close() }

// Acquire claims a key.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	return s.grant(ctx, c, func(k *record.Key, now time.Time) (store.Grant, error) { return k.Claim(now, &c) })
}

// Transfer puts a new claim in the place of a live holder. The line stays as it is, but for the
// claim's own place.
func (s *Store) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	return s.grant(ctx, to, func(k *record.Key, now time.Time) (store.Grant, error) { return k.Transfer(now, from, &to) })
}

// grant gives a grant its token. The token is drawn, and synced to the disk, before the record is
// written: a crash in between skips a number.
func (s *Store) grant(ctx context.Context, c store.Claim, decide func(k *record.Key, now time.Time) (store.Grant, error)) (store.Grant, error) {
	return edit(ctx, s, c.Ref, func(k *record.Key, now time.Time) (store.Grant, error) {
		g, err := decide(k, now)
		if err != nil {
			return g, err
		}
		token, err := s.draw(ctx, now)
		return store.Grant{Token: token, Left: honoured(g.Left), Since: g.Since, Line: g.Line}, err
	})
}

// honoured returns how long a holder may trust a TTL: where the wall clock judges expiry, that
// may be slewed by a thousandth against the monotonic clock.
func honoured(ttl time.Duration) time.Duration { return ttl - ttl/1000 }

// Renew answers each entry of the batch in its place.
func (s *Store) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	answers := make([]store.Renewed, len(batch))
	for i, r := range batch {
		answers[i], answers[i].Err = edit(ctx, s, r.Ref, func(k *record.Key, now time.Time) (store.Renewed, error) {
			renewed, err := k.Renew(now, r)
			renewed.Left = honoured(renewed.Left)
			return renewed, err
		})
	}
	return answers
}

// Release removes a holder. With Keep, the holder is marked as released and stays until Keep after its
// grant.
func (s *Store) Release(ctx context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	return edit(ctx, s, e.Ref, func(k *record.Key, now time.Time) (store.ReleaseResult, error) { return k.Release(now, e) })
}

// Leave takes a place out of the line. It removes the file if the place was all that the file
// held.
func (s *Store) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	return edit(ctx, s, store.Ref{Key: key, Mode: store.Exclusive}, func(k *record.Key, now time.Time) (store.Status, error) {
		return k.Leave(now, key, p), nil
	})
}

// Undo removes what a claim of unknown outcome may have left. It is always settled: a
// call that has returned changes nothing any more.
func (s *Store) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (settled bool, err error) {
	settled, err = edit(ctx, s, claim, func(k *record.Key, now time.Time) (bool, error) {
		k.Undo(now, claim, from)
		return true, nil
	})
	return settled || errors.Is(err, store.ErrForeign), err
}

// Break marks a holder as broken and, with atOnce, removes it.
func (s *Store) Break(ctx context.Context, r store.Ref, reason string, atOnce bool) error {
	_, err := edit(ctx, s, r, func(k *record.Key, now time.Time) (struct{}, error) {
		return struct{}{}, k.Break(now, r.ID, reason, atOnce)
	})
	return err
}

// Look reads keys without changing them. It takes no lock, because files are replaced
// as a whole.
func (s *Store) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all, foreign := make([]store.Status, len(keys)), make([]error, len(keys))
	for i, key := range keys {
		if err := ended(ctx); err != nil {
			return nil, err
		}
		f, err := s.read(key)
		if err != nil && !errors.Is(err, store.ErrForeign) {
			return nil, err
		}
		all[i], foreign[i] = f.Status(key, f.now), err
	}
	return all, errors.Join(foreign...)
}

// List yields the keys that begin with prefix, in byte order. Each is shown as it was when it
// was read: the list is not of one moment.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		all, err := s.list(ctx, prefix)
		for _, status := range all {
			if err = ended(ctx); err != nil || !yield(status, nil) {
				break
			}
		}
		if err != nil {
			yield(store.Status{}, err)
		}
	}
}

func (s *Store) list(ctx context.Context, prefix string) (all []store.Status, err error) {
	names, err := s.files.Names()
	if err != nil {
		return nil, fault(err, false)
	}
	for _, name := range names {
		if len(name) != len(hostfile.Name("")) {
			continue // no key's: some cannot be read
		}
		if err := ended(ctx); err != nil {
			return nil, err
		}
		text, err := s.files.Read(name)
		if err != nil {
			return nil, fault(err, false)
		}
		f, err := s.parse(text)
		if err == nil && hostfile.Name(f.Name) == name && strings.HasPrefix(f.Name, prefix) { // otherwise foreign, or removed meanwhile
			all = append(all, f.Status(f.Name, f.now))
		}
	}
	slices.SortFunc(all, func(a, b store.Status) int { return strings.Compare(a.Key, b.Key) })
	return all, ended(ctx)
}

// ended reports a context that has ended, as a fault that left no trace.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fault(err, false)
	}
	return nil
}
