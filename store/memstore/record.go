package memstore

import (
	"fmt"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A record is what stands under a key: a holder, live or run out, or something
// that is not of this library. A key without a record is free.
type record struct {
	holder
	wantedUntil time.Time // survives a change of holder, not the record

	foreign bool
	content any // of a foreign record
}

type holder struct {
	id, owner, note string
	since, expireAt time.Time

	released bool // but kept until expireAt
	broken   bool // apart from reason, which may be empty
	reason   string
}

// want leaves word for so long; it never shortens another's.
func (r *record) want(now time.Time, d time.Duration) {
	if until := now.Add(d); d > 0 && until.After(r.wantedUntil) {
		r.wantedUntil = until
	}
}

func (r *record) wanted(now time.Time) bool { return r.wantedUntil.After(now) }

// status is a copy; the caller owns it.
func (r *record) status(key string, now time.Time) store.Status {
	if r == nil || r.foreign {
		return store.Status{Key: key, Now: now}
	}
	return store.Status{
		Key: key, Mode: store.Exclusive, Limit: 1, Now: now, Wanted: r.wanted(now),
		Holders: []store.Holder{{
			ID: r.id, Owner: r.owner, Note: r.note,
			Since: r.since, ExpireAt: r.expireAt, Broken: r.reason,
		}},
	}
}

func (r *record) foreignError(key string) error {
	return fmt.Errorf("%w: %q has %T", store.ErrForeign, key, r.content)
}
