package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

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

func TestAHeldErrorSaysThatAKeyIsOnlyKept(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	done := store.Holder{Owner: "billing-1", ExpireAt: now.Add(20 * time.Second), Released: true}
	works := store.Holder{Owner: "billing-2", ExpireAt: now.Add(30 * time.Second)}
	ranOut := store.Holder{Owner: "billing-3", ExpireAt: now.Add(-time.Second)}
	for _, test := range []struct {
		holders []store.Holder
		text    string
	}{
		{[]store.Holder{done}, `"k" is kept by billing-1, which released it, for another 20s`},
		{[]store.Holder{ranOut, done}, `"k" is kept by billing-1, which released it, for another 20s`},
		{[]store.Holder{done, works}, `"k" is held by billing-2 and 1 more for another 30s unless renewed`},
		{[]store.Holder{ranOut}, `"k" is held`},
	} {
		err := &store.HeldError{Status: store.Status{Key: "k", Mode: store.Shared, Now: now, Holders: test.holders}}
		assert.EqualError(t, err, "mongolock: "+test.text)
	}
}

func TestAHeldErrorSaysWhatTheStoreIsNotSureOfYet(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	err := &store.HeldError{Status: store.Status{Key: "k", Mode: store.Exclusive, Now: now, Holders: []store.Holder{
		{Owner: "billing-1", ExpireAt: now.Add(-2 * time.Second), KnownBy: now.Add(12 * time.Second)},
	}}}
	assert.EqualError(t, err, `mongolock: "k" is held by billing-1, which ran out; that will be confirmed within 12s`)
}

func TestAHeldErrorCountsThoseThatComeFirst(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := store.Status{Key: "k", Now: now}
	for range 3 {
		s.Line = append(s.Line, store.Waiter{Place: store.NewPlace(store.Exclusive, 1, 1, "here"), Since: now, Seen: now})
	}
	for place, text := range map[store.Place]string{
		s.Line[0].Place: `"k" is held`,
		s.Line[1].Place: `"k" is free; 1 waiter comes first`,
		s.Line[2].Place: `"k" is free; 2 waiters come first`,
		"":              `"k" is free; 3 waiters come first`,
	} {
		assert.EqualError(t, &store.HeldError{Status: s, Place: place}, "mongolock: "+text)
	}
}
