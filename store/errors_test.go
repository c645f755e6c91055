package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/store"
)

func TestEveryVerdictIsCertainHoweverItIsWrapped(t *testing.T) {
	for name, verdict := range map[string]error{
		"HeldError":     &store.HeldError{},
		"ErrHeld":       store.ErrHeld,
		"MismatchError": &store.MismatchError{},
		"BrokenError":   &store.BrokenError{Reason: "deploy"},
		"ErrGone":       store.ErrGone,
		"ErrForeign":    store.ErrForeign,
		"ErrTooLarge":   store.ErrTooLarge,
	} {
		for _, err := range []error{verdict, fmt.Errorf("acquire: %w", verdict), errors.Join(context.Canceled, verdict)} {
			assert.True(t, store.IsVerdict(err), "%s as %q is a verdict", name, err)
			assert.True(t, store.IsCertain(err), "%s as %q is certain", name, err)
		}
	}
}

func TestAFaultThatWasNotAppliedIsCertainAndNoVerdict(t *testing.T) {
	err := fmt.Errorf("dial: %w (%w)", context.DeadlineExceeded, store.ErrNotApplied)
	assert.False(t, store.IsVerdict(err))
	assert.True(t, store.IsCertain(err))
}

func TestAnyOtherErrorIsUncertain(t *testing.T) {
	for _, err := range []error{nil, errors.New("connection reset"), context.Canceled, context.DeadlineExceeded, errors.ErrUnsupported} {
		assert.False(t, store.IsVerdict(err), "%v", err)
		assert.False(t, store.IsCertain(err), "%v", err)
	}
}
