package fence

import (
	"errors"
	"fmt"
)

// ErrFenced is matched by the error of every write that was refused because a newer
// token has written. The caller no longer holds the key: stop.
var ErrFenced = errors.New("fence: a newer token has written")

// An Error is the refusal of a write. It matches ErrFenced.
type Error struct {
	Token int64 // the caller's
	Newer int64 // the one that has written
}

func (e *Error) Error() string {
	return fmt.Sprintf("fence: token %d is outdated: %d has written", e.Token, e.Newer)
}

// Is makes errors.Is(err, ErrFenced) true.
func (e *Error) Is(target error) bool { return target == ErrFenced }
