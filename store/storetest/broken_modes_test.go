package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

// brokenModes are stores that get shared holders, permits or writers wrong.
var brokenModes = []broken{
	{"JoinReplaces", func() store.Store { return joinReplaces{newSound()} },
		[]string{"ReadersShareAKey", "PermitsAreNoMoreThanTheirLimit"}},
	{"JoinOfWhatWasSeen", func() store.Store { return joinOfWhatWasSeen{newSound()} },
		[]string{"JoinsAtTheSameInstantAllCount"}},
	{"JoinWritesAllAnew", func() store.Store { return joinWritesAllAnew{newSound()} },
		[]string{"AReaderThatStaysIsNotDisturbed"}},
	{"WriterSeesNoReaders", func() store.Store { return writerSeesNoReaders{newSound()} },
		[]string{"AReaderIsHonouredUntilItRunsOut", "ReadersAndWritersAreNeverInsideTogether"}},
	{"LastLeavesTheRecord", func() store.Store { return lastLeavesTheRecord{newSound()} },
		[]string{"TheLastToLeaveTakesTheRecordAlong"}},
	{"KeepForAll", func() store.Store { return keepForAll{newSound()} },
		[]string{"AKeptReaderStaysAndShortensNobody"}},
	{"BreakOfAll", func() store.Store { return breakOfAll{newSound()} },
		[]string{"ABreakOfOneReaderIsNoneOfTheOthers"}},
	{"UndoOfAll", func() store.Store { return undoOfAll{newSound()} },
		[]string{"UndoOfAJoinTakesNobodyElse"}},
	{"TransferOfSharers", func() store.Store { return transferOfSharers{newSound()} },
		[]string{"OnlyAnExclusiveHolderHasAPlaceToGive"}},
	{"SharedTokensAhead", func() store.Store { return sharedTokensAhead{newSound()} },
		[]string{"AnExclusiveTokenIsAboveAllSharedBefore"}},
	{"OnePermitTooMany", func() store.Store { return onePermitTooMany{newSound()} },
		[]string{"PermitsAreNoMoreThanTheirLimit", "ContendersForPermitsAreNeverTooMany"}},
	{"PermitsOfTheDead", func() store.Store { return permitsOfTheDead{newSound()} },
		[]string{"APermitThatRanOutMakesRoom"}},
	{"MismatchIsHeld", func() store.Store { return mismatchIsHeld{newSound()} },
		[]string{"AnotherModeOrLimitIsAMismatch"}},
	{"ModeForGood", func() store.Store { return newModeForGood() },
		[]string{"AModeGoesWithItsHolders"}},
	{"JoinIgnoresTheWriter", func() store.Store { return joinIgnoresTheWriter{newSound()} },
		[]string{"AWritersWordKeepsNewSharersOut"}},
	{"WriterForgottenByTheLast", func() store.Store { return writerForgottenByTheLast{newSound()} },
		[]string{"AWritersWordOutlivesTheLastReader"}},
	{"WriterForGood", func() store.Store { return writerForGood{newSound()} },
		[]string{"AWritersWordRunsOut"}},
	{"ReadersAskAsWriters", func() store.Store { return readersAskAsWriters{newSound()} },
		[]string{"ASharersWordKeepsNobodyOut"}},
	{"EveryWordIsAWriters", func() store.Store { return newEveryWordIsAWriters() },
		[]string{"AWordAmongWritersKeepsNobodyOut"}},
	{"WordStaysWithTheWriter", func() store.Store { return newWordStays() },
		[]string{"AWordGoesWithTheWriterThatWasServed"}},
	{"OnlyTheLastTells", func() store.Store { return onlyTheLastTells{newSound()} },
		[]string{"EveryLeaveTellsThatSomebodyWaits"}},
	{"WithdrawOfAny", func() store.Store { return withdrawOfAny{newSound()} },
		[]string{"AWordIsTakenBackByWhoLeftIt"}},
	{"ModesHalfDone", func() store.Store { return modesHalfDone{newSound()} },
		[]string{"AModeThatIsNotSupportedIsRefusedWithoutATrace"}},
}

func shares(m store.Mode) bool { return m != store.Exclusive }

// others does something to each other holder of the key than that of r.
func (s sound) others(r store.Ref, do func(store.Ref, store.Holder)) {
	all, _ := s.Store.Look(context.Background(), []string{r.Key})
	for _, h := range all[0].Holders {
		if h.ID != r.ID {
			do(store.Ref{Key: r.Key, ID: h.ID, Mode: all[0].Mode}, h)
		}
	}
}

func (s sound) drop(r store.Ref, _ store.Holder) {
	_, _ = s.Store.Release(context.Background(), r, 0)
}

// joinReplaces writes the whole map, and has only itself in it.
type joinReplaces struct{ sound }

func (s joinReplaces) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		s.others(c.Ref, s.drop)
	}
	return g, err
}

// joinOfWhatWasSeen writes the whole map as it read it before, and itself.
type joinOfWhatWasSeen struct{ sound }

func (s joinOfWhatWasSeen) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	seen := make(map[string]bool)
	s.others(c.Ref, func(r store.Ref, _ store.Holder) { seen[r.ID] = true })
	time.Sleep(time.Millisecond)
	g, err := s.Store.Acquire(ctx, c)
	if err == nil && shares(c.Mode) {
		s.others(c.Ref, func(r store.Ref, h store.Holder) {
			if !seen[r.ID] {
				s.drop(r, h)
			}
		})
	}
	return g, err
}

// joinWritesAllAnew has the others' old ends in the map that it writes.
type joinWritesAllAnew struct{ sound }

func (s joinWritesAllAnew) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil && shares(c.Mode) {
		s.others(c.Ref, func(r store.Ref, h store.Holder) {
			old := c
			old.Ref, old.TTL, old.Owner = r, long, h.Owner
			s.drop(r, h)
			_, _ = s.Store.Acquire(ctx, old)
		})
	}
	return g, err
}

type writerSeesNoReaders struct{ sound }

func (s writerSeesNoReaders) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); !shares(c.Mode) && shares(status.Mode) {
		s.others(c.Ref, s.drop)
	}
	return s.Store.Acquire(ctx, c)
}

type lastLeavesTheRecord struct{ sound }

func (s lastLeavesTheRecord) Release(ctx context.Context, r store.Ref, keep time.Duration) (bool, error) {
	wanted, err := s.Store.Release(ctx, r, keep)
	if h, _ := s.holder(r.Key); err == nil && h.ID == "" && shares(r.Mode) {
		_, _ = s.Store.Acquire(ctx, store.Claim{Ref: r, TTL: 1})
	}
	return wanted, err
}

type keepForAll struct{ sound }

func (s keepForAll) Release(ctx context.Context, r store.Ref, keep time.Duration) (bool, error) {
	if keep > 0 {
		s.others(r, func(r store.Ref, _ store.Holder) { _, _ = s.Store.Release(ctx, r, keep) })
	}
	return s.Store.Release(ctx, r, keep)
}

type breakOfAll struct{ sound }

func (s breakOfAll) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	s.others(r, func(r store.Ref, _ store.Holder) { _ = s.Store.Break(ctx, r, reason, now) })
	return s.Store.Break(ctx, r, reason, now)
}

type undoOfAll struct{ sound }

func (s undoOfAll) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	if shares(claim.Mode) {
		s.others(claim, s.drop)
	}
	return s.Store.Undo(ctx, claim, from)
}

type transferOfSharers struct{ sound }

func (s transferOfSharers) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	if shares(from.Mode) || shares(to.Mode) {
		s.drop(from, store.Holder{})
		return s.Store.Acquire(ctx, to)
	}
	return s.Store.Transfer(ctx, from, to)
}

type sharedTokensAhead struct{ sound }

func (s sharedTokensAhead) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if shares(c.Mode) {
		g.Token += 1000
	}
	return g, err
}

type onePermitTooMany struct{ sound }

func (s onePermitTooMany) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.Mode == store.Permits {
		c.Limit++
	}
	return s.Store.Acquire(ctx, c)
}

// permitsOfTheDead counts all that are in the record.
type permitsOfTheDead struct{ sound }

func (s permitsOfTheDead) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); c.Mode == store.Permits && len(status.Holders) >= c.Limit {
		return store.Grant{}, &store.HeldError{Status: status}
	}
	return s.Store.Acquire(ctx, c)
}

type mismatchIsHeld struct{ sound }

func (s mismatchIsHeld) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if errors.Is(err, store.ErrModeMismatch) {
		_, status := s.holder(c.Key)
		err = &store.HeldError{Status: status}
	}
	return g, err
}

// modeForGood lets the first claim of a key decide its mode.
type modeForGood struct {
	sound
	mu    *sync.Mutex // protects first
	first map[string]store.Mode
}

func newModeForGood() modeForGood {
	return modeForGood{newSound(), new(sync.Mutex), make(map[string]store.Mode)}
}

func (s modeForGood) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first[c.Key] == "" {
		s.first[c.Key] = c.Mode
	}
	if live := s.first[c.Key]; shares(live) && shares(c.Mode) && live != c.Mode {
		return store.Grant{}, &store.MismatchError{Key: c.Key, Live: live, Claim: c}
	}
	return s.Store.Acquire(ctx, c)
}

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

type writerForGood struct{ sound }

func (s writerForGood) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
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

// everyWordIsAWriters keeps sharers out wherever somebody waits to have a key alone.
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

// wordStays keeps a writer's word until a release, whoever had the key since.
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

type onlyTheLastTells struct{ sound }

func (s onlyTheLastTells) Release(ctx context.Context, r store.Ref, keep time.Duration) (bool, error) {
	wanted, err := s.Store.Release(ctx, r, keep)
	h, _ := s.holder(r.Key)
	return wanted && h.ID == "", err
}

type withdrawOfAny struct{ sound }

func (s withdrawOfAny) Withdraw(_ context.Context, key string, _ time.Time) error {
	s.forgetTheWriter(key)
	return nil
}

// modesHalfDone takes the key before it sees that it cannot share it.
type modesHalfDone struct{ sound }

func (s modesHalfDone) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if !shares(c.Mode) {
		return s.Store.Acquire(ctx, c)
	}
	c.Mode, c.Limit = store.Exclusive, 1
	_, _ = s.Store.Acquire(ctx, c)
	return store.Grant{}, fmt.Errorf("no such mode: %w (%w)", errors.ErrUnsupported, store.ErrNotApplied)
}
