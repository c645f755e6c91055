package storetest

import (
	"context"
	"errors"

	"github.com/mongolock/mongolock/store"
)

// marksUnseen does not tell others who wants to hear of them, nor that a holder was released for later.
type marksUnseen struct{ sound }

func (s marksUnseen) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all, err := s.Store.Look(ctx, keys)
	for _, status := range all {
		hide(status)
	}
	return all, err
}

func (s marksUnseen) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	var held *store.HeldError
	if errors.As(err, &held) {
		hide(held.Status)
	}
	return g, err
}

func hide(s store.Status) {
	for i := range s.Holders {
		s.Holders[i].Yields, s.Holders[i].Released = "", false
	}
}
