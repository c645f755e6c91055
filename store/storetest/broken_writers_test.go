package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

// These stores mishandle the words of writers. brokenModes lists them.

func (s sound) forgetTheWriter(key string) {
	_, status := s.holder(key)
	_ = s.Store.Withdraw(context.Background(), key, status.ExclusiveWantedUntil)
}

type joinIgnoresTheWriter struct{ sound }

func (s joinIgnoresTheWriter) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if shares(c.Mode) {
		s.forgetTheWriter(c.Key)
	}
	return s.Store.Acquire(ctx, c)
}

type writerForgottenByTheLast struct{ sound }

func (s writerForgottenByTheLast) Release(ctx context.Context, r store.Ref, keep time.Duration) (bool, error) {
	wanted, err := s.Store.Release(ctx, r, keep)
	if h, _ := s.holder(r.Key); h.ID == "" {
		s.forgetTheWriter(r.Key)
	}
	return wanted, err
}

type writerForEver struct{ sound }

func (s writerForEver) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.Want > 0 {
		c.Want = time.Hour
	}
	return s.Store.Acquire(ctx, c)
}

type readersAskAsWriters struct{ sound }

func (s readersAskAsWriters) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err != nil && shares(c.Mode) && c.Want > 0 {
		c.Mode, c.ID = store.Exclusive, "writer"
		_, _ = s.Store.Acquire(ctx, c)
		_, status := s.holder(c.Key)
		err = &store.HeldError{Status: status}
	}
	return g, err
}

// everyWordIsAWriters keeps sharers out even where a writer waits for another writer.
type everyWordIsAWriters struct {
	sound
	mu    *sync.Mutex // protects words
	words map[string]bool
}

func newEveryWordIsAWriters() everyWordIsAWriters {
	return everyWordIsAWriters{newSound(), new(sync.Mutex), make(map[string]bool)}
}

func (s everyWordIsAWriters) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shares(c.Mode) && s.words[c.Key] {
		_, status := s.holder(c.Key)
		return store.Grant{}, &store.HeldError{Status: status}
	}
	g, err := s.Store.Acquire(ctx, c)
	s.words[c.Key] = err != nil && c.Want > 0 && !shares(c.Mode)
	return g, err
}

// wordStays keeps a writer's word after the writer was granted the key.
type wordStays struct{ everyWordIsAWriters }

func newWordStays() wordStays { return wordStays{newEveryWordIsAWriters()} }

func (s wordStays) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, status := s.holder(c.Key)
	if shares(c.Mode) && s.words[c.Key] {
		return store.Grant{}, &store.HeldError{Status: status}
	}
	g, err := s.Store.Acquire(ctx, c)
	if err != nil && c.Want > 0 && !shares(c.Mode) && shares(status.Mode) {
		s.words[c.Key] = true
	}
	return g, err
}

type onlyTheLastReports struct{ sound }

func (s onlyTheLastReports) Release(ctx context.Context, r store.Ref, keep time.Duration) (bool, error) {
	wanted, err := s.Store.Release(ctx, r, keep)
	h, _ := s.holder(r.Key)
	return wanted && h.ID == "", err
}

type withdrawOfAny struct{ sound }

func (s withdrawOfAny) Withdraw(_ context.Context, key string, _ time.Time) error {
	s.forgetTheWriter(key)
	return nil
}
