// Package heldby shows package mongolocktest the leases of a client. No other package
// can see them: each belongs to the code that acquired it.
package heldby

// Leases returns the leases of a *mongolock.Client that are not given back yet, each as
// a *mongolock.Lease. Package mongolock sets it when it is initialised.
var Leases func(client any) []any
