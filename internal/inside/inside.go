// Package inside shows other packages of this library what they need to know of a
// client, without adding to what its users see. Package mongolock sets the functions
// when it is initialised.
package inside

import (
	"log/slog"
	"time"

	"github.com/mongolock/mongolock/store"
)

// Leases returns the leases of a *mongolock.Client that are not given back yet, each as
// a *mongolock.Lease. It is for package mongolocktest alone: a lease belongs to the code
// that acquired it.
var Leases func(client any) []any

// Terms are what a lease is asked for on.
type Terms struct {
	Mode    store.Mode
	Limit   int
	MinHold time.Duration
	Logger  *slog.Logger // the client's
}

// TermsOf returns what a mongolock.Locker asks for when it acquires key with options,
// a []mongolock.AcquireOption, or what is wrong with them. The defaults are those of the
// client that the Locker is or embeds; if it has none, those of a client without options.
var TermsOf func(locker any, key string, options any) (Terms, error)
