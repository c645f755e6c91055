package doclock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

func TestBadFiltersAreRefusedByNameBeforeAnythingIsSent(t *testing.T) {
	var tap testserver.Tap
	locks := locksOn[order](t, collection(t, tap.On))
	tooLong := strings.Repeat("x", 1100)
	for want, filter := range map[string]any{
		"the filter: is nil":                      nil,
		"the filter is empty":                     bson.D{},
		"the filter's total":                      bson.M{"total": bson.M{"$gt": 1}},
		"the filter's $or":                        bson.M{"$or": bson.A{}},
		"the filter's state":                      bson.M{"state": nil},
		"the filter has":                          ID(tooLong),
		"the filter names a twice":                bson.D{{Key: "a", Value: 1}, {Key: "a", Value: 2}},
		"the filter: ":                            make(chan int),
		"the filter: is a string, not a document": "o-17",
		"the filter: is a int, not a document":    17,
		"the filter: is a bson.A, not a document": bson.A{bson.D{{Key: "_id", Value: 17}}},
	} {
		_, err := locks.Acquire(t.Context(), filter)
		assert.ErrorContains(t, err, want)
	}
	assert.Empty(t, tap.TakeNames(), "commands sent")
}

func TestBadArgumentsAreRefusedByNameBeforeAnythingIsSent(t *testing.T) {
	var tap testserver.Tap
	coll := collection(t, tap.On)
	locks := locksOn[order](t, coll)
	anyFields := locksOn[bson.M](t, coll)
	for want, call := range map[string]func() error{
		"the collection is nil": func() error { _, err := New[order](nil); return err },
		`Field("a.b")`:          func() error { _, err := New[order](coll, Field("a.b")); return err },
		`Field("")`:             func() error { _, err := New[order](coll, Field("")); return err },
		"Registry(nil)":         func() error { _, err := New[order](coll, Registry(nil)); return err },
		"a nil Option":          func() error { _, err := New[order](coll, nil); return err },
		"have a field state":    func() error { _, err := New[order](coll, Field("state")); return err },
		"TTL(1ms)":              func() error { _, err := New[order](coll, With(mongolock.TTL(time.Millisecond))); return err },
		"a nil AcquireOption":   func() error { _, err := New[order](coll, With(nil)); return err },
		"With: doclock: Shared": func() error { _, err := New[order](coll, With(mongolock.OneOf(2))); return err },
		"WithOwner is empty":    func() error { _, err := New[order](coll, WithOwner("")); return err },
		"WithObserver(nil)":     func() error { _, err := New[order](coll, WithObserver(nil)); return err },
		"initial value's _id": func() error {
			_, err := locks.TryAcquireOrCreate(t.Context(), ID("a"), order{ID: "b"})
			return err
		},
		"has a field lock": func() error {
			_, err := anyFields.TryAcquireOrCreate(t.Context(), ID("a"), bson.M{"lock": 1})
			return err
		},
		`has a field "a.b"`: func() error {
			_, err := anyFields.TryAcquireOrCreate(t.Context(), ID("a"), bson.M{"a.b": 1})
			return err
		},
		"claim: the filter: is a string, not a document": func() error { _, err := locks.TryClaim(t.Context(), "state", nil); return err },
		"claim: the sort: is a string, not a document":   func() error { _, err := locks.Claim(t.Context(), bson.D{}, "state"); return err },
		"the sort: is a int, not a document":             func() error { return locks.EnsureClaimIndex(t.Context(), bson.D{}, 1) },
		"Announce: the collection is nil":                func() error { return Announce(t.Context(), nil) },
	} {
		assert.ErrorContains(t, call(), want)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := locks.Acquire(ended, ID("a"))
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, tap.TakeNames(), "commands sent")
}

// allLocking are the calls that lock a document, each with its options.
func allLocking(locks *Locks[order], filter any) map[string]func(context.Context, ...mongolock.AcquireOption) error {
	return map[string]func(context.Context, ...mongolock.AcquireOption) error{
		"Acquire": func(ctx context.Context, opts ...mongolock.AcquireOption) error {
			_, err := locks.Acquire(ctx, filter, opts...)
			return err
		},
		"TryAcquire": func(ctx context.Context, opts ...mongolock.AcquireOption) error {
			_, err := locks.TryAcquire(ctx, filter, opts...)
			return err
		},
		"AcquireOrCreate": func(ctx context.Context, opts ...mongolock.AcquireOption) error {
			_, err := locks.AcquireOrCreate(ctx, filter, order{}, opts...)
			return err
		},
		"TryAcquireOrCreate": func(ctx context.Context, opts ...mongolock.AcquireOption) error {
			_, err := locks.TryAcquireOrCreate(ctx, filter, order{}, opts...)
			return err
		},
		"Claim": func(ctx context.Context, opts ...mongolock.AcquireOption) error {
			_, err := locks.Claim(ctx, filter, nil, opts...)
			return err
		},
		"TryClaim": func(ctx context.Context, opts ...mongolock.AcquireOption) error {
			_, err := locks.TryClaim(ctx, filter, nil, opts...)
			return err
		},
	}
}

func TestADocumentIsRefusedToSeveralHoldersBeforeAnythingIsSent(t *testing.T) {
	var tap testserver.Tap
	locks := locksOn[order](t, collection(t, tap.On))
	for name, lock := range allLocking(locks, bson.M{"state": "new"}) {
		for how, opt := range map[string]mongolock.AcquireOption{"Shared": mongolock.Shared(), "OneOf": mongolock.OneOf(3)} {
			err := lock(t.Context(), opt)
			assert.ErrorIs(t, err, errors.ErrUnsupported, "%s with %s", name, how)
			assert.ErrorContains(t, err, "Shared and OneOf: a document has one holder", "%s with %s", name, how)
		}
	}
	assert.Empty(t, tap.TakeNames(), "commands sent")
}

func TestBadOptionsOfALeaseAreRefusedTogetherBeforeAnythingIsSent(t *testing.T) {
	var tap testserver.Tap
	locks := locksOn[order](t, collection(t, tap.On))
	for name, lock := range allLocking(locks, bson.M{"state": "new"}) {
		err := lock(t.Context(), mongolock.TTL(time.Millisecond), nil, mongolock.MaxHold(-1))
		for _, want := range []string{"TTL(1ms)", "a nil AcquireOption", "MaxHold"} {
			assert.ErrorContains(t, err, want, name)
		}
	}
	assert.Empty(t, tap.TakeNames(), "commands sent")
}

func TestTheOptionsOfACallOverrideThoseOfAllLocks(t *testing.T) {
	for n, opts := range [][]mongolock.AcquireOption{nil, {mongolock.TTL(time.Hour), mongolock.Note("by hand")}} {
		coll := collection(t)
		locks := locksOn[order](t, coll, WithOwner("billing"), With(mongolock.TTL(time.Minute), mongolock.Note("nightly")))
		for name := range allLocking(locks, nil) {
			put(t, coll, order{ID: name, State: "new"})
			require.NoError(t, allLocking(locks, ID(name))[name](t.Context(), opts...), name)
			s, err := locks.Inspect(t.Context(), ID(name))
			require.NoError(t, err)
			require.Len(t, s.Holders, 1)
			h := s.Holders[0]
			assert.Equal(t, "billing", h.Owner, name)
			assert.Equal(t, []string{"nightly", "by hand"}[n], h.Note, name)
			assert.InDelta(t, []time.Duration{time.Minute, time.Hour}[n], h.ExpireAt.Sub(h.Since), float64(10*time.Second), name)
		}
	}
}

// An observer sees the lease that is asked for, and not the check of its options.
func TestTheCheckOfOptionsIsNotObserved(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o"})
	waiting := make(operations, 16)
	locks := locksOn[order](t, coll, WithObserver(waiting))
	doc, err := locks.Acquire(t.Context(), ID("o"), mongolock.TTL(time.Minute))
	require.NoError(t, err)
	require.NoError(t, doc.Release())
	close(waiting)
	var seen []mongolock.Op
	for op := range waiting {
		seen = append(seen, op)
	}
	assert.Equal(t, []mongolock.Op{mongolock.OpAcquire, mongolock.OpHold, mongolock.OpRelease}, seen)
}

type operations chan mongolock.Op

func (o operations) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	o <- of.Op
	return ctx, func(mongolock.Outcome) {}
}

func TestATypeWhoseValuesAreNoDocumentsIsRefused(t *testing.T) {
	coll := newReplicaSet(0).collection(t)
	_, err := New[int](coll)
	require.ErrorContains(t, err, "doclock: New: values of type int are no documents: ")
	_, err = New[string](coll)
	require.ErrorContains(t, err, "values of type string are no documents")
	for _, err := range []error{
		of[bson.D](coll), of[bson.M](coll), of[bson.Raw](coll), of[any](coll), of[*order](coll), of[order](coll), of[map[string]int](coll),
	} {
		assert.NoError(t, err)
	}
}

func of[T any](coll *mongo.Collection) error {
	l, err := New[T](coll)
	if err == nil {
		err = l.Close()
	}
	return err
}
