package storetest

import (
	"context"
	"errors"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

// brokenReaders are stores that mishandle Look, List or texts.
var brokenReaders = []broken{
	{"LookSweeps", func() store.Store { return lookSweeps{newSound()} },
		[]string{"ALookChangesNothing", "AnExpiredHolderIsStillShown"}},
	{"LookInItsOwnOrder", func() store.Store { return lookInItsOwnOrder{newSound()} },
		[]string{"ALookAnswersInTheOrderOfItsKeys", "ALookReportsForeignRecordsAmongOthers"}},
	{"LookAtNothingFails", func() store.Store { return lookAtNothingFails{newSound()} },
		[]string{"ALookAtNoKeysIsNoError"}},
	{"ListByPattern", func() store.Store { return listByPattern{newSound()} },
		[]string{"AListTakesItsPrefixLiterally"}},
	{"ListInAnyOrder", func() store.Store { return listInAnyOrder{newSound()} },
		[]string{"AListHasTheKeysOfAPrefixInOrder"}},
	{"ListOfLiveHoldersOnly", func() store.Store { return listOfLiveHoldersOnly{newSound()} },
		[]string{"AListShowsExpiredHolders"}},
	{"ListOfOne", func() store.Store { return listOfOne{newSound()} },
		[]string{"AListCanBeEndedEarly"}},
	{"KeysFolded", func() store.Store { return keysFolded{newSound()} },
		[]string{"KeysDoNotAffectEachOther", "AnyTextCanBeAKey"}},
	{"TextsTrimmed", func() store.Store { return textsTrimmed{newSound()} },
		[]string{"OwnerNoteAndReasonCanBeAnyText"}},
	{"AnswersShared", func() store.Store { return newAnswersShared() },
		[]string{"ReturnedValuesBelongToTheCaller"}},
}

type lookSweeps struct{ sound }

func (s lookSweeps) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	for _, key := range keys {
		if _, status := s.holder(key); status.Free() {
			s.remove(key)
		}
	}
	return s.Store.Look(ctx, keys)
}

type lookInItsOwnOrder struct{ sound }

func (s lookInItsOwnOrder) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	return s.Store.Look(ctx, slices.Sorted(slices.Values(keys)))
}

type lookAtNothingFails struct{ sound }

func (s lookAtNothingFails) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	if len(keys) == 0 {
		return nil, errors.New("$in needs an array")
	}
	return s.Store.Look(ctx, keys)
}

// filtered lists the statuses for which keep is true.
func (s sound) filtered(ctx context.Context, prefix string, keep func(store.Status) bool) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		for status, err := range s.Store.List(ctx, prefix) {
			if (err != nil || keep(status)) && !yield(status, err) {
				return
			}
		}
	}
}

type listByPattern struct{ sound }

func (s listByPattern) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	pattern, err := regexp.Compile("^" + prefix)
	if err != nil {
		return func(yield func(store.Status, error) bool) { yield(store.Status{}, err) }
	}
	return s.filtered(ctx, "", func(status store.Status) bool { return pattern.MatchString(status.Key) })
}

type listInAnyOrder struct{ sound }

func (s listInAnyOrder) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		var all []store.Status
		for status, err := range s.Store.List(ctx, prefix) {
			if err != nil {
				yield(status, err)
				return
			}
			all = append(all, status)
		}
		for _, status := range slices.Backward(all) {
			if !yield(status, nil) {
				return
			}
		}
	}
}

type listOfLiveHoldersOnly struct{ sound }

func (s listOfLiveHoldersOnly) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return s.filtered(ctx, prefix, func(status store.Status) bool { return !status.Free() })
}

type listOfOne struct{ sound }

func (s listOfOne) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	seen := 0
	return s.filtered(ctx, prefix, func(store.Status) bool {
		seen++
		return seen == 1
	})
}

// keysFolded folds the case of a key's first letter and trims its end, as a collation
// may.
type keysFolded struct{ sound }

func folded(key string) string { return strings.ToLower(key[:1]) + trimmed(key[1:]) }

func (s keysFolded) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	key := c.Key
	c.Key = folded(c.Key)
	g, err := s.Store.Acquire(ctx, c)
	var held *store.HeldError
	if errors.As(err, &held) {
		held.Key = key
	}
	return g, err
}

func (s keysFolded) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	other := make([]string, len(keys))
	for i, key := range keys {
		other[i] = folded(key)
	}
	return s.Store.Look(ctx, other)
}

// trimmed changes a text as a careless store may.
func trimmed(text string) string { return strings.TrimSpace(strings.TrimRight(text, "\x00")) }

type textsTrimmed struct{ sound }

func (s textsTrimmed) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	c.Owner, c.Note = trimmed(c.Owner), trimmed(c.Note)
	return s.Store.Acquire(ctx, c)
}

// answersShared returns the same slice of holders to every caller.
type answersShared struct {
	sound
	mu   *sync.Mutex // protects seen
	seen map[string]store.Status
}

func newAnswersShared() answersShared {
	return answersShared{newSound(), new(sync.Mutex), make(map[string]store.Status)}
}

func (s answersShared) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all, err := s.Store.Look(ctx, keys)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, status := range all {
		old, ok := s.seen[status.Key]
		if ok && len(old.Holders) == len(status.Holders) {
			all[i] = old
			all[i].Now = time.Now()
		}
		s.seen[status.Key] = all[i]
	}
	return all, err
}
