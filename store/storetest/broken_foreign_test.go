package storetest

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/mongolock/mongolock/store"
)

// brokenForeign are stores that mishandle foreign records.
var brokenForeign = []broken{
	{"ForeignOverwritten", func() store.Store { return foreignOverwritten{newSound()} },
		[]string{"AForeignRecordAnswersErrForeignAndStays", "AForeignRecordInAHoldersPlaceStays"}},
	{"ForeignIsHeld", func() store.Store { return foreignIsHeld{newSound()} },
		[]string{"AForeignRecordAnswersErrForeignAndStays"}},
	{"ForeignReleased", func() store.Store { return foreignReleased{newSound()} },
		[]string{"AForeignRecordInAHoldersPlaceStays"}},
	{"ForeignLeft", func() store.Store { return foreignLeft{newSound()} },
		[]string{"AForeignRecordAnswersErrForeignAndStays"}},
	{"ForeignNotReported", func() store.Store { return foreignNotReported{newSound()} },
		[]string{"ALookReportsForeignRecordsAmongOthers"}},
	{"ForeignListed", func() store.Store { return &foreignListed{sound: newSound()} },
		[]string{"AListLeavesForeignRecordsOut"}},
}

type foreignOverwritten struct{ sound }

func (s foreignOverwritten) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if errors.Is(err, store.ErrForeign) {
		s.Delete(c.Key)
		return s.Store.Acquire(ctx, c)
	}
	return g, err
}

type foreignIsHeld struct{ sound }

func (s foreignIsHeld) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if errors.Is(err, store.ErrForeign) {
		err = &store.HeldError{Status: store.Status{Key: c.Key}}
	}
	return g, err
}

type foreignReleased struct{ sound }

func (s foreignReleased) Release(_ context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	answer, err := s.end(e)
	if errors.Is(err, store.ErrForeign) {
		s.Delete(e.Key)
	}
	return answer, err
}

// foreignLeft takes a record that it cannot read for one without a line.
type foreignLeft struct{ sound }

func (s foreignLeft) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	status, err := s.Store.Leave(ctx, key, p)
	if errors.Is(err, store.ErrForeign) {
		err = nil
	}
	return status, err
}

type foreignNotReported struct{ sound }

func (s foreignNotReported) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all, err := s.Store.Look(ctx, keys)
	if errors.Is(err, store.ErrForeign) {
		err = nil
	}
	return all, err
}

type foreignListed struct {
	sound
	keys []string // of the foreign records
}

func (s *foreignListed) Foreign(key string) (func() error, error) {
	s.keys = append(s.keys, key)
	return s.sound.Foreign(key)
}

func (s *foreignListed) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		for _, key := range s.keys {
			if strings.HasPrefix(key, prefix) && !yield(store.Status{Key: key}, nil) {
				return
			}
		}
		s.Store.List(ctx, prefix)(yield)
	}
}
