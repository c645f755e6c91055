package store

import (
	"context"
	"time"
)

// An Ending asks to release a holder, as the arguments of Release do.
type Ending struct {
	Ref
	Keep time.Duration
}

// Ended answers one Ending, as Release answers.
type Ended struct {
	Wanted bool
	Err    error
}

// A BulkReleaser releases many holders at once, where one call for each would take too long. It
// is optional. The engine does not look for it behind a method Unwrap: the Release of a wrapper
// may do more than the store's.
type BulkReleaser interface {
	// ReleaseMany releases each holder of a batch, and answers in the same order what
	// Release would.
	ReleaseMany(ctx context.Context, batch []Ending) []Ended
}

// Claimed answers one Claim of a batch, as Acquire answers.
type Claimed struct {
	Grant
	Err error
}

// A BulkAcquirer claims many keys at once, where one call for each would take too long. It is
// optional, and not looked for behind a method Unwrap, like a BulkReleaser. If a store is both,
// the engine also has a few exclusive holders released by ReleaseMany, if no waiter is known;
// otherwise only seventeen or more.
type BulkAcquirer interface {
	// AcquireMany makes each claim of a batch, and answers in the same order what Acquire
	// would. But it need not read what stands in the way of a claim: a key that has a record,
	// whatever its content, may be answered with a HeldError whose Status is empty. The engine
	// then asks with Acquire. An error that matches errors.ErrUnsupported and ErrNotApplied for
	// every claim means: never ask again.
	AcquireMany(ctx context.Context, batch []Claim) []Claimed
}
