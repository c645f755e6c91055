package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

// brokenModes are stores that mishandle shared holders or permits.
var brokenModes = []broken{
	{"JoinReplaces", func() store.Store { return joinReplaces{newSound()} },
		[]string{"ReadersShareAKey", "NoMorePermitsAreGrantedThanTheLimit"}},
	{"JoinOfWhatWasSeen", func() store.Store { return joinOfWhatWasSeen{newSound()} },
		[]string{"ReadersThatJoinAtOnceAllHoldTheKey"}},
	{"JoinWritesOldExpiries", func() store.Store { return joinWritesOldExpiries{newSound()} },
		[]string{"AReaderIsUnaffectedWhenOthersComeAndGo"}},
	{"WriterSeesNoReaders", func() store.Store { return writerSeesNoReaders{newSound()} },
		[]string{"AReaderIsHonouredUntilItExpires", "ReadersAndWritersNeverHoldTheKeyAtOnce"}},
	{"LastLeavesTheRecord", func() store.Store { return lastLeavesTheRecord{newSound()} },
		[]string{"TheLastSharerToLeaveRemovesTheRecord"}},
	{"KeepForAll", func() store.Store { return keepForAll{newSound()} },
		[]string{"AKeptReaderStaysAndAffectsNoOther"}},
	{"BreakOfAll", func() store.Store { return breakOfAll{newSound()} },
		[]string{"ABreakOfOneReaderAffectsNoOther"}},
	{"UndoOfAll", func() store.Store { return undoOfAll{newSound()} },
		[]string{"AnUndoOfOneReaderAffectsNoOther"}},
	{"TransferOfSharers", func() store.Store { return transferOfSharers{newSound()} },
		[]string{"OnlyAnExclusiveHolderCanBeTransferred"}},
	{"SharedTokensAhead", func() store.Store { return sharedTokensAhead{newSound()} },
		[]string{"AnExclusiveTokenIsAboveThoseOfEarlierSharers"}},
	{"OnePermitTooMany", func() store.Store { return onePermitTooMany{newSound()} },
		[]string{"NoMorePermitsAreGrantedThanTheLimit", "ContendersNeverHoldMorePermitsThanTheLimit"}},
	{"WeightsAreNotCounted", func() store.Store { return weightsAreNotCounted{newSound()} },
		[]string{"WeightsAreNoMoreThanTheLimitInSum", "AnExpiredWeightIsGrantedAgain", "ContendersNeverHoldMoreWeightThanTheLimit", "AHeavyClaimIsNotOvertaken"}},
	{"LargestLimitCounts", func() store.Store { return newKnownLimit(func(known, own int) int { return max(known, own) }) },
		[]string{"EachClaimIsJudgedByItsOwnLimit", "ContendersOfSeveralLimitsHeedTheirOwn"}},
	{"SmallestLimitCounts", func() store.Store {
		return newKnownLimit(func(known, own int) int { return min(cmp.Or(known, own), own) })
	}, []string{"EachClaimIsJudgedByItsOwnLimit", "ASmallerLimitKeepsItsTurn"}},
	{"FirstLimitCounts", func() store.Store { return newKnownLimit(func(known, own int) int { return cmp.Or(known, own) }) },
		[]string{"EachClaimIsJudgedByItsOwnLimit", "ASmallerLimitKeepsItsTurn"}},
	{"AnotherLimitIsAMismatch", func() store.Store { return anotherLimitIsAMismatch{newKnownLimit(func(_, own int) int { return own })} },
		[]string{"EachClaimIsJudgedByItsOwnLimit", "ASmallerLimitKeepsItsTurn"}},
	{"LargerOvertakesSmaller", func() store.Store { return largerOvertakesSmaller{newSound()} },
		[]string{"ASmallerLimitKeepsItsTurn", "ALargerLimitLeavesEnoughForThoseBefore"}},
	{"LightOvertakesHeavy", func() store.Store { return lightOvertakesHeavy{newSound()} },
		[]string{"AHeavyClaimIsNotOvertaken"}},
	{"ExpiredPermitsCount", func() store.Store { return expiredPermitsCount{newSound()} },
		[]string{"AnExpiredPermitIsGrantedAgain"}},
	{"MismatchIsHeld", func() store.Store { return mismatchIsHeld{newSound()} },
		[]string{"AnotherModeIsAMismatch"}},
	{"ModeForEver", func() store.Store { return newModeForEver() },
		[]string{"AModeEndsWithItsLastHolder"}},
	{"ModesHalfDone", func() store.Store { return modesHalfDone{newSound()} },
		[]string{"AnUnsupportedModeIsRefusedWithoutATrace"}},
}

func shares(m store.Mode) bool { return m != store.Exclusive }

// others calls do for each holder of the key but that of r.
func (s sound) others(r store.Ref, do func(store.Ref, store.Holder)) {
	all, _ := s.Store.Look(context.Background(), []string{r.Key})
	for _, h := range all[0].Holders {
		if h.ID != r.ID {
			do(store.Ref{Key: r.Key, ID: h.ID, Mode: all[0].Mode}, h)
		}
	}
}

func (s sound) drop(r store.Ref, _ store.Holder) {
	s.end(store.ReleaseRequest{Ref: r})
}

// joinReplaces replaces the whole set of holders by the new one.
type joinReplaces struct{ sound }

func (s joinReplaces) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		s.others(c.Ref, s.drop)
	}
	return g, err
}

// joinOfWhatWasSeen writes the whole set of holders as it read them before, and itself.
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

// joinWritesOldExpiries writes the others' original expiries over their renewed ones.
type joinWritesOldExpiries struct{ sound }

func (s joinWritesOldExpiries) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
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

func (s lastLeavesTheRecord) Release(ctx context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	answer, err := s.end(e)
	if h, _ := s.holder(e.Key); err == nil && h.ID == "" && shares(e.Mode) {
		_, _ = s.Store.Acquire(ctx, store.Claim{Ref: e.Ref, TTL: 1})
	}
	return answer, err
}

type keepForAll struct{ sound }

func (s keepForAll) Release(_ context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	if e.Keep > 0 {
		s.others(e.Ref, func(r store.Ref, _ store.Holder) { s.end(store.ReleaseRequest{Ref: r, Keep: e.Keep}) })
	}
	return s.end(e)
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

type weightsAreNotCounted struct{ sound }

func (s weightsAreNotCounted) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	c.Weight = 0
	return s.Store.Acquire(ctx, c)
}

// knownLimit judges claims of permits by a limit that is made of the claim's own and those that it has
// seen of the key's earlier claims.
type knownLimit struct {
	sound
	of    func(known, own int) int
	mu    *sync.Mutex // protects known
	known map[string]int
}

func newKnownLimit(of func(known, own int) int) knownLimit {
	return knownLimit{newSound(), of, new(sync.Mutex), make(map[string]int)}
}

func (s knownLimit) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Mode == store.Permits {
		c.Limit = s.of(s.known[c.Key], c.Limit)
		s.known[c.Key] = c.Limit
	}
	return s.Store.Acquire(ctx, c)
}

// anotherLimitIsAMismatch wants all holders' claims to name the same limit.
type anotherLimitIsAMismatch struct{ knownLimit }

func (s anotherLimitIsAMismatch) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.mu.Lock()
	known := s.known[c.Key]
	s.mu.Unlock()
	if _, status := s.holder(c.Key); c.Mode == store.Permits && status.Mode == store.Permits && !status.Free() && known != c.Limit {
		return store.Grant{}, &store.MismatchError{Key: c.Key, Live: status.Mode, Claim: c}
	}
	return s.knownLimit.Acquire(ctx, c)
}

// largerOvertakesSmaller grants a permit by the claim's limit alone, though others come before it.
type largerOvertakesSmaller struct{ sound }

func (s largerOvertakesSmaller) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); c.Mode == store.Permits && status.Taken()+max(1, c.Weight) <= c.Limit {
		if i := slices.IndexFunc(status.Line, func(w store.Waiter) bool { return w.Place == c.Place }); c.Place != "" && i > 0 {
			for _, w := range status.Line[:i] {
				_, _ = s.Leave(ctx, c.Key, w.Place)
			}
		}
	}
	return s.Store.Acquire(ctx, c)
}

// lightOvertakesHeavy grants a permit that is free, though the first in line needs it.
type lightOvertakesHeavy struct{ sound }

func (s lightOvertakesHeavy) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); c.Mode == store.Permits && c.Weight <= 1 && status.Taken() < c.Limit {
		if stands(status, c.Place) && status.Line[0].Place.Weight() > 1 {
			heavy := status.Line[0]
			_, _ = s.Leave(ctx, c.Key, heavy.Place)
			defer s.queue(c.Key, heavy)
		}
	}
	return s.Store.Acquire(ctx, c)
}

// expiredPermitsCount counts expired permits, too.
type expiredPermitsCount struct{ sound }

func (s expiredPermitsCount) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
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

// modeForEver lets the first claim of a key decide its mode.
type modeForEver struct {
	sound
	mu    *sync.Mutex // protects first
	first map[string]store.Mode
}

func newModeForEver() modeForEver {
	return modeForEver{newSound(), new(sync.Mutex), make(map[string]store.Mode)}
}

func (s modeForEver) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
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

// modesHalfDone takes the key before it notices that it cannot share it.
type modesHalfDone struct{ sound }

func (s modesHalfDone) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if !shares(c.Mode) {
		return s.Store.Acquire(ctx, c)
	}
	c.Mode, c.Limit = store.Exclusive, 1
	_, _ = s.Store.Acquire(ctx, c)
	return store.Grant{}, fmt.Errorf("no such mode: %w (%w)", errors.ErrUnsupported, store.ErrNotApplied)
}
