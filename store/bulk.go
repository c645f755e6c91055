package store

import (
	"context"
	"time"
)

// An Ending asks to release a holder, as the arguments of Release do.
type Ending struct {
	Ref
	Keep  time.Duration
	Again bool // an attempt failed: a record may be held up, and should hold up no other
}

// Ended answers one Ending, as Release answers.
type Ended struct {
	Wanted bool
	Err    error
}

// A BulkReleaser releases many holders at once, where one call for each would take too
// long. It is optional. It is not looked for behind a method Unwrap: the Release of a
// wrapper may do more than the store's.
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

// A BulkAcquirer claims many keys at once, where one call for each would take too long. It
// is optional, and not looked for behind a method Unwrap, as a BulkReleaser. Of a store that is
// both, the engine has a few exclusive holders released by ReleaseMany as well, if nobody is
// known to wait for them; of another one only from seventeen on.
type BulkAcquirer interface {
	// AcquireMany makes each claim of a batch, and answers in the same order what Acquire
	// would. But it need not look at what stands in the way of a claim: a key that has a
	// record, whatever that says, may be answered with a HeldError whose Status is empty. The
	// engine then asks with Acquire. An error that matches errors.ErrUnsupported and
	// ErrNotApplied for every claim means: never ask again.
	AcquireMany(ctx context.Context, batch []Claim) []Claimed
}
