package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// tokenInRecord counts tokens in the record of the key, which a release or only a
// removal by hand takes away.
type tokenInRecord struct {
	sound
	atRelease bool
	mu        *sync.Mutex // protects tokens
	tokens    map[string]int64
}

func newTokenInRecord(atRelease bool) tokenInRecord {
	return tokenInRecord{newSound(), atRelease, new(sync.Mutex), make(map[string]int64)}
}

func (s tokenInRecord) number(key string, g store.Grant, err error) (store.Grant, error) {
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tokens[key]++
		g.Token = s.tokens[key]
	}
	return g, err
}

func (s tokenInRecord) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, key)
}

func (s tokenInRecord) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	return s.number(c.Key, g, err)
}

func (s tokenInRecord) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	g, err := s.Store.Transfer(ctx, from, to)
	return s.number(to.Key, g, err)
}

func (s tokenInRecord) Release(_ context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	answer, err := s.end(e)
	if err == nil && s.atRelease {
		s.forget(e.Key)
	}
	return answer, err
}

func (s tokenInRecord) Purge(key string) error {
	s.forget(key)
	return s.sound.Purge(key)
}

// newClockOfTheCaller judges by the clock of the caller: every second one is ahead.
func newClockOfTheCaller() sound {
	var mu sync.Mutex
	calls := 0
	return sound{memstore.New(memstore.WithClock(func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls%2 == 0 {
			return time.Now().Add(time.Hour)
		}
		return time.Now()
	}))}
}

// clockOfAStaleSample computes expiries from a time that it read before the call, and
// promises Left as if that time had been read within it.
type clockOfAStaleSample struct{ sound }

func newClockOfAStaleSample() clockOfAStaleSample { return clockOfAStaleSample{newSound()} }

func (s clockOfAStaleSample) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	const age = 50 * time.Millisecond
	ttl := c.TTL
	c.TTL -= min(age, ttl/2)
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		g.Left = ttl
	}
	return g, err
}

type leftLongerThanHonoured struct{ sound }

func (s leftLongerThanHonoured) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		g.Left += time.Second
	}
	return g, err
}

type heldWithoutStatus struct{ sound }

func (s heldWithoutStatus) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if errors.Is(err, store.ErrHeld) {
		err = &store.HeldError{Status: store.Status{Key: c.Key}}
	}
	return g, err
}

// heldWithAStatusSeenBefore shows the status from before the claim, not the one that
// refused it.
type heldWithAStatusSeenBefore struct{ sound }

func (s heldWithAStatusSeenBefore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	_, before := s.holder(c.Key)
	time.Sleep(time.Millisecond)
	g, err := s.Store.Acquire(ctx, c)
	if errors.Is(err, store.ErrHeld) {
		err = &store.HeldError{Status: before}
	}
	return g, err
}

// refusalLeavesATrace writes a note of the refused claim into the holder.
type refusalLeavesATrace struct{ sound }

func (s refusalLeavesATrace) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if h, status := s.holder(c.Key); errors.Is(err, store.ErrHeld) {
		h.Note = "wanted by " + c.ID
		s.again(h, store.Renewal{Ref: c.Ref, TTL: status.Left()})
	}
	return g, err
}

// checkThenAct looks whether the key is free, and then takes it in a second step.
type checkThenAct struct{ sound }

func (s checkThenAct) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); !status.Free() {
		return store.Grant{}, &store.HeldError{Status: status}
	}
	time.Sleep(time.Millisecond)
	return s.replace(c)
}

// expiredKeysStayTaken relies on a clean-up to remove expired holders.
type expiredKeysStayTaken struct{ sound }

func (s expiredKeysStayTaken) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if h, status := s.holder(c.Key); h.ID != "" {
		return store.Grant{}, &store.HeldError{Status: status}
	}
	return s.Store.Acquire(ctx, c)
}
