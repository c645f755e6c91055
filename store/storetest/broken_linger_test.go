package storetest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/mongolock/mongolock/store"
)

// spareWithoutRoom promises spare tokens and counts grants one by one.
type spareWithoutRoom struct {
	sound
	grants *atomic.Int64
}

func newSpareWithoutRoom() spareWithoutRoom { return spareWithoutRoom{newSound(), new(atomic.Int64)} }

func (s spareWithoutRoom) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	g.Token = s.grants.Add(1)
	return g, err
}

func (s spareWithoutRoom) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	g, err := s.Store.Transfer(ctx, from, to)
	g.Token = s.grants.Add(1)
	return g, err
}

// lingersUnseen has room for local grants, and does not tell others who may keep a key.
type lingersUnseen struct{ sound }

func (s lingersUnseen) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all, err := s.Store.Look(ctx, keys)
	for _, status := range all {
		hide(status)
	}
	return all, err
}

func (s lingersUnseen) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	var held *store.HeldError
	if errors.As(err, &held) {
		hide(held.Status)
	}
	return g, err
}

func hide(s store.Status) {
	for i := range s.Holders {
		s.Holders[i].Lingers, s.Holders[i].Yields, s.Holders[i].Released = "", "", false
	}
}
