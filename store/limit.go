package store

import "context"

// A LimitSetter is a store that keeps for a key how many permits it has, beside what its claims
// say. It is optional.
//
// The number outlasts all holders, and the process that set it. It counts in place of the Limit of
// claims and holders, which still tells a mismatch. A claim whose Weight is greater waits, and those
// behind it pass it. No holder is ended: while more are taken, none is granted.
type LimitSetter interface {
	// SetLimit sets the number, or removes it if n is 0, and returns the key as it is then. Every
	// claim that begins after that is refused or granted by it. It may be repeated. After an error
	// that is not certain, the number may be set, or be set later, until SetLimit is called again
	// and succeeds.
	SetLimit(ctx context.Context, key string, n int) (Status, error)
}
