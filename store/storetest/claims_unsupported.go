package storetest

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/mongolock/mongolock/store"
)

var exclusiveOnlyClaims = []claim{
	{"AnUnsupportedModeIsRefusedWithoutATrace", anUnsupportedModeIsRefusedWithoutATrace},
}

// sharesKeys reports whether a store supports other modes than Exclusive.
func sharesKeys(s store.Store) bool {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	r := store.Ref{Key: "storetest" + rand.Text(), ID: rand.Text(), Mode: store.Shared}
	_, err := s.Acquire(ctx, store.Claim{Ref: r, TTL: long})
	if err == nil {
		_, _ = s.Release(ctx, store.ReleaseRequest{Ref: r}) // if this fails, the holder expires
	}
	return !errors.Is(err, errors.ErrUnsupported)
}

func anUnsupportedModeIsRefusedWithoutATrace(e *env) {
	key := e.key("exclusive only")
	for _, c := range []store.Claim{e.reader(key, long), e.permit(key, 2, long)} {
		_, err := e.try(c)
		if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, store.ErrNotApplied) {
			e.Errorf("a claim of mode %s: %v", c.Mode, err)
		}
		e.free(key)
	}
	e.hold(key, long)
}
