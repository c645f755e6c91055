package doclock

import (
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/store"
)

var (
	// ErrNotFound: no document matches the filter. From every Acquire that does not
	// create, also from one that waits when the document is removed.
	ErrNotFound = errors.New("doclock: no such document")

	// ErrAmbiguous: the filter matches several documents, or might. Name one: by _id,
	// or by the fields of a unique index.
	ErrAmbiguous = errors.New("doclock: the filter does not name one document")

	// ErrNoWork: TryClaim found nothing to claim.
	ErrNoWork = errors.New("doclock: nothing to claim")

	// ErrDecode: the document does not decode into the value's type. It was given
	// back as it was.
	ErrDecode = errors.New("doclock: the document does not decode")
)

// A notFoundError is a verdict of the store: the engine passes those on, also from a
// waiter, where it would ride out a fault.
type notFoundError struct{ key string }

func (n *notFoundError) Error() string { return fmt.Sprintf("%v: %s", ErrNotFound, n.key) }

func (n *notFoundError) Is(target error) bool {
	return target == ErrNotFound || target == store.ErrGone
}
