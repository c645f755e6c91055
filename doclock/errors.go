package doclock

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongolock/mongolock/store"
)

var (
	// ErrNotFound is returned by Acquire and TryAcquire if no document matches the filter,
	// and by a waiting Acquire whose document is removed.
	ErrNotFound = errors.New("doclock: no such document")

	// ErrAmbiguous is returned by Acquire, AcquireOrCreate and their Try forms if the filter
	// matches several documents, or might. Name one document: by _id, or by the fields of a
	// unique index.
	ErrAmbiguous = errors.New("doclock: the filter does not name one document")

	// ErrNoWork is returned by TryClaim if there is nothing to claim. (The error of a Claim
	// whose context ended matches the context's instead.)
	ErrNoWork = errors.New("doclock: nothing to claim")

	// ErrDecode is returned by every call that locks a document, if the document does not
	// decode into the value's type. The document was released unchanged.
	ErrDecode = errors.New("doclock: the document does not decode")
)

// A notFoundError is a verdict of the store. The engine returns a verdict to a waiter at
// once, where it would ride out a fault.
type notFoundError struct{ filter string }

func (n *notFoundError) Error() string { return fmt.Sprintf("%v: %s", ErrNotFound, n.filter) }

func (n *notFoundError) Is(target error) bool {
	return target == ErrNotFound || target == store.ErrGone
}

// contextError returns why ctx is over: its error, with the cause if that says more.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
