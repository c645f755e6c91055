package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/mongolock/mongolock/store"
)

// brokenSessions are stores that mishandle sessions.
var brokenSessions = []broken{
	{"SessionsThatKeepNothing", func() store.Store { return sessionsThatKeepNothing{newSound()} },
		[]string{"AHolderUnderASessionOutlivesItsOwnEnd", "ARenewalOfASessionKeepsAllItsHolders"}},
	{"SessionsThatLastTooLong", func() store.Store { return sessionsThatLastTooLong{newSound()} },
		[]string{"AHolderUnderASessionIsOverWhenBothHaveRunOut"}},
	{"SessionsThatAreRevived", func() store.Store { return sessionsThatAreRevived{newSound()} },
		[]string{"ASessionThatSomebodyTookForOverIsNotRenewed", "ASessionThatWasNeverBegunIsGone", "AnEndedSessionKeepsNothing"}},
	{"SessionsThatDoNotEnd", func() store.Store { return sessionsThatDoNotEnd{newSound()} },
		[]string{"AnEndedSessionKeepsNothing"}},
	{"SessionsBegunTwice", func() store.Store { return sessionsBegunTwice{newSound()} },
		[]string{"ASessionsIDIsUsedOnce"}},
	{"SessionsThatNobodyLeaves", func() store.Store { return sessionsThatNobodyLeaves{newSound()} },
		[]string{"AHolderTakenOutOfItsSessionHasItsOwnEnd", "AHolderReleasedForLaterLeavesItsSession"}},
	{"SessionsThatHearNothing", func() store.Store { return sessionsThatHearNothing{newSound()} },
		[]string{"ABreakIsToldToTheSession"}},
	{"NoSweep", func() store.Store { return noSweep{newSound()} },
		[]string{"ASweepRemovesWhatADeadSessionLeft"}},
	{"SweepByKey", func() store.Store { return &sweepByKey{sound: newSound()} },
		[]string{"ASweepLeavesAllOthersAlone"}},
}

type sessionsThatKeepNothing struct{ sound }

func (s sessionsThatKeepNothing) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Session = ""
	}
	return s.Store.Renew(ctx, batch)
}

type sessionsThatLastTooLong struct{ sound }

func (s sessionsThatLastTooLong) BeginSession(ctx context.Context, of store.Session) (time.Duration, error) {
	ttl := of.TTL
	of.TTL *= 10
	_, err := s.Store.BeginSession(ctx, of)
	return ttl, err
}

// sessionsThatAreRevived renews whatever it is asked to.
type sessionsThatAreRevived struct{ sound }

func (s sessionsThatAreRevived) RenewSession(ctx context.Context, of store.Session) (store.SessionRenewed, error) {
	r, err := s.Store.RenewSession(ctx, of)
	if err != nil {
		return store.SessionRenewed{Left: of.TTL}, nil
	}
	return r, nil
}

type sessionsThatDoNotEnd struct{ sound }

func (s sessionsThatDoNotEnd) EndSession(context.Context, string) error { return nil }

type sessionsBegunTwice struct{ sound }

func (s sessionsBegunTwice) BeginSession(ctx context.Context, of store.Session) (time.Duration, error) {
	_, _ = s.Store.BeginSession(ctx, of)
	return of.TTL, nil
}

// sessionsThatNobodyLeaves keeps a holder under its session whatever it is asked to.
type sessionsThatNobodyLeaves struct{ sound }

func (s sessionsThatNobodyLeaves) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].Alone = false
	}
	return s.Store.Renew(ctx, batch)
}

func (s sessionsThatNobodyLeaves) Release(_ context.Context, batch []store.Ending) []store.Ended {
	return eachRelease(batch, func(e store.Ending) store.Ended {
		if e.Keep > 0 {
			return store.Ended{}
		}
		return s.end(e)
	})
}

type sessionsThatHearNothing struct{ sound }

func (s sessionsThatHearNothing) RenewSession(ctx context.Context, of store.Session) (store.SessionRenewed, error) {
	r, err := s.Store.RenewSession(ctx, of)
	r.Broken = nil
	return r, err
}

type noSweep struct{ sound }

func (noSweep) Sweep(context.Context) ([]string, error) { return nil, nil }

// sweepByKey removes every holder of the keys that were once under a session.
type sweepByKey struct {
	sound
	keys []string
}

func (s *sweepByKey) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	for _, r := range batch {
		s.keys = append(s.keys, r.Key)
	}
	return s.Store.Renew(ctx, batch)
}

func (s *sweepByKey) Sweep(context.Context) ([]string, error) {
	for _, key := range s.keys {
		s.remove(key)
	}
	return nil, nil
}
