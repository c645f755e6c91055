package storetest

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/mongolock/mongolock/store"
)

// brokenWithStrangers are stores that take others' records for their own.
var brokenWithStrangers = []broken{
	{"StrangersOverwritten", func() store.Store { return strangersOverwritten{newSound()} },
		[]string{"AStrangerAnswersForeignAndStays", "AStrangerInAHoldersPlaceStays"}},
	{"StrangersAreHeld", func() store.Store { return strangersAreHeld{newSound()} },
		[]string{"AStrangerAnswersForeignAndStays"}},
	{"StrangersReleased", func() store.Store { return strangersReleased{newSound()} },
		[]string{"AStrangerInAHoldersPlaceStays"}},
	{"StrangersNotTold", func() store.Store { return strangersNotTold{newSound()} },
		[]string{"ALookTellsOfStrangersAmongOthers"}},
	{"StrangersListed", func() store.Store { return &strangersListed{sound: newSound()} },
		[]string{"AListPassesStrangersOver"}},
}

type strangersOverwritten struct{ sound }

func (s strangersOverwritten) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if errors.Is(err, store.ErrForeign) {
		s.Delete(c.Key)
		return s.Store.Acquire(ctx, c)
	}
	return g, err
}

type strangersAreHeld struct{ sound }

func (s strangersAreHeld) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if errors.Is(err, store.ErrForeign) {
		err = &store.HeldError{Status: store.Status{Key: c.Key}}
	}
	return g, err
}

type strangersReleased struct{ sound }

func (s strangersReleased) Release(ctx context.Context, r store.Ref, keep time.Duration) (bool, error) {
	wanted, err := s.Store.Release(ctx, r, keep)
	if errors.Is(err, store.ErrForeign) {
		s.Delete(r.Key)
	}
	return wanted, err
}

type strangersNotTold struct{ sound }

func (s strangersNotTold) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all, err := s.Store.Look(ctx, keys)
	if errors.Is(err, store.ErrForeign) {
		err = nil
	}
	return all, err
}

type strangersListed struct {
	sound
	strangers []string
}

func (s *strangersListed) Foreign(key string) (func() error, error) {
	s.strangers = append(s.strangers, key)
	return s.sound.Foreign(key)
}

func (s *strangersListed) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		for _, key := range s.strangers {
			if strings.HasPrefix(key, prefix) && !yield(store.Status{Key: key}, nil) {
				return
			}
		}
		s.Store.List(ctx, prefix)(yield)
	}
}
