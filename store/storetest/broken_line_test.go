package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongolock/mongolock/store"
)

// brokenLines are stores that mishandle who stands in line.
var brokenLines = []broken{
	{"JoinsAtTheFront", func() store.Store { return joinsAtTheFront{newSound()} },
		[]string{"ARefusedClaimJoinsTheLineAtItsEnd"}},
	{"AskingAgainCostsThePlace", func() store.Store { return askingAgainCostsThePlace{newSound()} },
		[]string{"AWaiterThatAsksAgainKeepsItsPlace"}},
	{"AskingAgainIsNotSeen", func() store.Store { return askingAgainIsNotSeen{newSound()} },
		[]string{"AWaiterThatAsksAgainKeepsItsPlace", "AWaiterThatIsSeenIsNotPassed"}},
	{"JoinsLostInARace", func() store.Store { return joinsLostInARace{newSound(), new(atomic.Int64)} },
		[]string{"AllThatJoinAtOnceStandInLine"}},
	{"PlacesTwice", func() store.Store { return placesTwice{newSound(), new(sync.Map)} },
		[]string{"AllThatJoinAtOnceStandInLine"}},
	{"PlaceForEverybody", func() store.Store { return placeForEverybody{newSound()} },
		[]string{"AFullLineTakesNoFurtherPlace"}},
	{"LeaveIgnored", func() store.Store { return leaveIgnored{newSound()} },
		[]string{"LeaveTakesAPlaceOutOfTheLine", "TheRecordStaysForItsLineAndGoesWithIt"}},
	{"LeaveOfTheFirst", func() store.Store { return leaveOfTheFirst{newSound()} },
		[]string{"LeaveTakesAPlaceOutOfTheLine"}},
	{"LastInLineLeavesTheRecord", func() store.Store { return lastInLineLeavesTheRecord{newSound()} },
		[]string{"TheRecordStaysForItsLineAndGoesWithIt"}},
	{"LineGoesWithItsHolder", func() store.Store { return lineGoesWithItsHolder{newSound()} },
		[]string{"TheRecordStaysForItsLineAndGoesWithIt", "TheLineOutlivesItsHolderHoweverThatEnds"}},
	{"LineGoesWithATransfer", func() store.Store { return lineGoesWithATransfer{newSound()} },
		[]string{"TheLineStaysAsHoldersAreRenewedAndReplaced"}},
	{"KeepForgetsTheLine", func() store.Store { return keepForgetsTheLine{newSound()} },
		[]string{"AKeptKeyKeepsItsLine"}},
	{"HintOfHeldBelieved", func() store.Store { return hintOfHeldBelieved{newSound()} }, []string{"HintsChangeNoAnswer"}},
	{"HintOfOfferBelieved", func() store.Store { return hintOfOfferBelieved{newSound()} }, []string{"HintsChangeNoAnswer"}},
	{"HintOfPlaceBelieved", func() store.Store { return hintOfPlaceBelieved{newSound()} }, []string{"HintsChangeNoAnswer"}},
	{"HintOfLineBelieved", func() store.Store { return hintOfLineBelieved{newSound()} }, []string{"HintsChangeNoAnswer"}},
}

// refusal is a HeldError with the status of now.
func (s sound) refusal(c store.Claim) error {
	_, status := s.holder(c.Key)
	held := &store.HeldError{Status: status}
	if stands(status, c.Place) {
		held.Place = c.Place
	}
	return held
}

// clear takes everybody out of the line of a key.
func (s sound) clear(key string) {
	_, status := s.holder(key)
	for _, w := range status.Line {
		_, _ = s.Store.Leave(context.Background(), key, w.Place)
	}
}

// queue has waiters join the line of a key, which is held or has a line.
func (s sound) queue(key string, line ...store.Waiter) {
	for _, w := range line {
		mode, limit := w.Place.Mode()
		c := store.Claim{Ref: store.Ref{Key: key, ID: rand.Text(), Mode: mode}, Limit: limit, TTL: long, Owner: w.Owner, Place: w.Place}
		_, _ = s.Store.Acquire(context.Background(), c)
	}
}

type joinsAtTheFront struct{ sound }

func (s joinsAtTheFront) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	_, before := s.holder(c.Key)
	g, err := s.Store.Acquire(ctx, c)
	if errors.Is(err, store.ErrHeld) && c.Place != "" && !stands(before, c.Place) {
		for _, w := range before.Line {
			_, _ = s.Store.Leave(ctx, c.Key, w.Place)
		}
		s.queue(c.Key, before.Line...)
		err = s.refusal(c)
	}
	return g, err
}

type askingAgainCostsThePlace struct{ sound }

func (s askingAgainCostsThePlace) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); !status.Free() {
		_, _ = s.Store.Leave(ctx, c.Key, c.Place)
	}
	return s.Store.Acquire(ctx, c)
}

// askingAgainIsNotSeen only looks whether it is the turn of one who stands in line.
type askingAgainIsNotSeen struct{ sound }

func (s askingAgainIsNotSeen) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); stands(status, c.Place) && (!status.Free() || !status.Turn(&c)) {
		return store.Grant{}, s.refusal(c)
	}
	return s.Store.Acquire(ctx, c)
}

type joinsLostInARace struct {
	sound
	joining *atomic.Int64
}

func (s joinsLostInARace) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	n := s.joining.Add(1)
	defer s.joining.Add(-1)
	time.Sleep(time.Millisecond)
	g, err := s.Store.Acquire(ctx, c)
	if err != nil && n == 3 {
		_, _ = s.Store.Leave(ctx, c.Key, c.Place)
	}
	return g, err
}

// placesTwice has a waiter stand in line as often as it asked.
type placesTwice struct {
	sound
	asked *sync.Map // places
}

func (s placesTwice) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if _, before := s.asked.LoadOrStore(c.Place, false); before && err != nil {
		s.asked.Store(c.Place, true)
	}
	return g, err
}

func (s placesTwice) Look(ctx context.Context, keys []string) ([]store.Status, error) {
	all, err := s.Store.Look(ctx, keys)
	for i := range all {
		for _, w := range slices.Clone(all[i].Line) {
			if twice, _ := s.asked.Load(w.Place); twice == true {
				all[i].Line = append(all[i].Line, w)
			}
		}
	}
	return all, err
}

// placeForEverybody says that a claim waits, whether it does or not.
type placeForEverybody struct{ sound }

func (s placeForEverybody) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	var held *store.HeldError
	if errors.As(err, &held) {
		held.Place = c.Place
	}
	return g, err
}

type leaveIgnored struct{ sound }

func (s leaveIgnored) Leave(_ context.Context, key string, _ store.Place) (store.Status, error) {
	_, status := s.holder(key)
	return status, nil
}

type leaveOfTheFirst struct{ sound }

func (s leaveOfTheFirst) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	if _, status := s.holder(key); len(status.Line) > 0 {
		p = status.Line[0].Place
	}
	return s.Store.Leave(ctx, key, p)
}

type lastInLineLeavesTheRecord struct{ sound }

func (s lastInLineLeavesTheRecord) Leave(ctx context.Context, key string, p store.Place) (store.Status, error) {
	status, err := s.Store.Leave(ctx, key, p)
	if err == nil && len(status.Line) == 0 && len(status.Holders) == 0 {
		_, _ = s.Store.Acquire(ctx, store.Claim{Ref: exclusive(key, "nobody"), Limit: 1, TTL: 1})
	}
	return status, err
}

// lineGoesWithItsHolder removes a record with its last holder.
type lineGoesWithItsHolder struct{ sound }

func (s lineGoesWithItsHolder) tidy(key string) {
	if h, _ := s.holder(key); h.ID == "" {
		s.clear(key)
	}
}

func (s lineGoesWithItsHolder) Release(ctx context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	defer s.tidy(e.Key)
	return s.Store.Release(ctx, e)
}

func (s lineGoesWithItsHolder) Undo(ctx context.Context, claim store.Ref, from *store.Ref) (bool, error) {
	defer s.tidy(claim.Key)
	return s.Store.Undo(ctx, claim, from)
}

func (s lineGoesWithItsHolder) Break(ctx context.Context, r store.Ref, reason string, now bool) error {
	defer s.tidy(r.Key)
	return s.Store.Break(ctx, r, reason, now)
}

type lineGoesWithATransfer struct{ sound }

func (s lineGoesWithATransfer) Transfer(ctx context.Context, from store.Ref, to store.Claim) (store.Grant, error) {
	defer s.clear(to.Key)
	return s.Store.Transfer(ctx, from, to)
}

type keepForgetsTheLine struct{ sound }

func (s keepForgetsTheLine) Release(_ context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	answer, err := s.end(e)
	if e.Keep > 0 {
		answer.Line = nil
	}
	return answer, err
}

type hintOfHeldBelieved struct{ sound }

func (s hintOfHeldBelieved) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.Held {
		return store.Grant{}, s.refusal(c)
	}
	return s.Store.Acquire(ctx, c)
}

// hintOfOfferBelieved grants a key to whoever says that it is offered to it.
type hintOfOfferBelieved struct{ sound }

func (s hintOfOfferBelieved) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.Offered {
		return s.replace(c)
	}
	return s.Store.Acquire(ctx, c)
}

// hintOfPlaceBelieved does not join the line for one who says that it stands there.
type hintOfPlaceBelieved struct{ sound }

func (s hintOfPlaceBelieved) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, status := s.holder(c.Key); c.InLine && !stands(status, c.Place) {
		return store.Grant{}, s.refusal(c)
	}
	return s.Store.Acquire(ctx, c)
}

// hintOfLineBelieved looks for waiters only if some are known.
type hintOfLineBelieved struct{ sound }

func (s hintOfLineBelieved) Release(_ context.Context, e store.ReleaseRequest) (store.ReleaseResult, error) {
	answer, err := s.end(e)
	if !e.Line {
		answer.Line = nil
	}
	return answer, err
}
