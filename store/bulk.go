package store

import "context"

// Claimed answers one Claim of a batch, as Acquire answers.
type Claimed struct {
	Grant
	Err error
}

// A BulkAcquirer claims many keys at once, where one call for each would take too long. It is
// optional. The engine does not look for it behind a method Unwrap: the Acquire of a wrapper may do
// more than the store's.
type BulkAcquirer interface {
	// AcquireMany makes each claim of a batch, and answers in the same order what Acquire
	// would. But it need not read what stands in the way of a claim: a key that has a record,
	// whatever its content, may be answered with a HeldError whose Status is empty. The engine
	// then asks with Acquire. An error that matches errors.ErrUnsupported and ErrNotApplied for
	// every claim means: never ask again.
	AcquireMany(ctx context.Context, batch []Claim) []Claimed
}
