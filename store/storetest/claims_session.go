package storetest

import (
	"crypto/rand"
	"time"

	"github.com/mongolock/mongolock/store"
)

var sessionClaims = []claim{
	{"AHolderUnderASessionOutlivesItsOwnEnd", aHolderUnderASessionOutlivesItsOwnEnd},
	{"AHolderUnderASessionIsOverWhenBothHaveRunOut", aHolderUnderASessionIsOverWhenBothHaveRunOut},
	{"ASessionThatSomebodyTookForOverIsNotRenewed", aSessionThatSomebodyTookForOverIsNotRenewed},
	{"ARenewalOfASessionKeepsAllItsHolders", aRenewalOfASessionKeepsAllItsHolders},
	{"AnEndedSessionKeepsNothing", anEndedSessionKeepsNothing},
	{"ASessionThatWasNeverBegunIsGone", aSessionThatWasNeverBegunIsGone},
	{"ASessionsIDIsUsedOnce", aSessionsIDIsUsedOnce},
	{"AHolderTakenOutOfItsSessionHasItsOwnEnd", aHolderTakenOutOfItsSessionHasItsOwnEnd},
	{"AHolderReleasedForLaterLeavesItsSession", aHolderReleasedForLaterLeavesItsSession},
	{"ABreakIsToldToTheSession", aBreakIsToldToTheSession},
	{"ASweepRemovesWhatADeadSessionLeft", aSweepRemovesWhatADeadSessionLeft},
	{"ASweepLeavesTheLine", aSweepLeavesTheLine},
	{"ASweepLeavesAllOthersAlone", aSweepLeavesAllOthersAlone},
}

// sessions are the store's.
func (e *env) sessions() store.Sessions {
	s, _ := store.As[store.Sessions](e.store)
	return s
}

// A begun is a session, with the time until which it is certainly honoured.
type begun struct {
	store.Session
	honoured time.Time
}

func (e *env) begin(ttl time.Duration) begun {
	e.Helper()
	b := begun{Session: store.Session{ID: rand.Text(), Owner: "storetest", TTL: ttl}}
	sent := time.Now()
	left, err := e.sessions().BeginSession(e.ctx(), b.Session)
	if err != nil || left <= 0 || left > ttl {
		e.Fatalf("a session for %v: %v left, %v", ttl, left, err)
	}
	b.honoured = sent.Add(left)
	e.Cleanup(func() { _ = e.sessions().EndSession(e.ctx(), b.ID) })
	return b
}

// holdUnder is hold, and a renewal that puts the holder under a session.
func (e *env) holdUnder(session begun, key string, ttl time.Duration) held {
	e.Helper()
	h := e.hold(key, ttl)
	e.enter(&h, store.Renewal{TTL: ttl, Session: session.ID})
	return h
}

// enter renews a holder.
func (e *env) enter(h *held, r store.Renewal) {
	e.Helper()
	r.Ref = h.Ref
	h.sent = time.Now()
	answer := e.store.Renew(e.ctx(), []store.Renewal{r})[0]
	h.replied, h.TTL, h.grant.Left = time.Now(), r.TTL, answer.Left
	if answer.Err != nil {
		e.Fatalf("renewal of %q: %v", h.Key, answer.Err)
	}
}

func (e *env) endSession(session begun) {
	e.Helper()
	if err := e.sessions().EndSession(e.ctx(), session.ID); err != nil {
		e.Fatalf("end of a session: %v", err)
	}
}

func (e *env) renewSession(session begun) error {
	_, err := e.sessions().RenewSession(e.ctx(), session.Session)
	return err
}

func aHolderUnderASessionOutlivesItsOwnEnd(e *env) {
	session := e.begin(long)
	h := e.holdUnder(session, e.key("kept"), short)
	e.outlive(h)
	e.refused(e.claim(h.Key, short))
	if _, err := e.renew(e.claim(h.Key, short).Ref, short); err == nil {
		e.Errorf("another ID was renewed")
	}
	status := e.look(h.Key)
	if got := e.only(status); !status.Live(got) || got.Session != session.ID || status.Left() > long+e.slack() || status.Left() < long/2 {
		e.Errorf("the holder of a session with %v left is shown as %+v", long, status)
	}
	e.enter(&h, store.Renewal{TTL: short, Session: session.ID}) // a holder past its own end is renewed as before
	e.holds(h)
	e.release(h.Ref)
	e.free(h.Key)
}

func aHolderUnderASessionIsOverWhenBothHaveRunOut(e *env) {
	session := e.begin(3 * short)
	began := time.Now()
	h := e.holdUnder(session, e.key("kept"), short)
	e.takenUntil(h.Key, session.honoured, began.Add(3*short+e.slack()))

	session = e.begin(short)
	h = e.holdUnder(session, e.key("kept by itself"), 3*short)
	e.takenUntil(h.Key, h.honoured(), h.replied.Add(3*short+e.slack()))
}

func aSessionThatSomebodyTookForOverIsNotRenewed(e *env) {
	session := e.begin(short)
	h := e.holdUnder(session, e.key("kept"), short)
	e.outlive(h)
	e.soon(h.Key, long)
	e.gone("renewal of a session whose key was taken over", e.renewSession(session))
	e.gone("the same again", e.renewSession(session))
	_, err := e.renew(h.Ref, long)
	e.gone("renewal of its holder", err)
}

func aRenewalOfASessionKeepsAllItsHolders(e *env) {
	for range 5 { // as in aRenewalRestartsTheTTL
		session := e.begin(3 * short)
		var all []held
		for range 3 {
			all = append(all, e.holdUnder(session, e.key("kept"), short))
		}
		e.sleepUntil(session.honoured.Add(-short))
		sent := time.Now()
		r, err := e.sessions().RenewSession(e.ctx(), session.Session)
		if err != nil && time.Now().After(session.honoured) {
			continue
		}
		if err != nil || r.Left <= 0 || r.Left > session.TTL {
			e.Fatalf("renewal of a session: %+v, %v", r, err)
		}
		e.sleepUntil(session.honoured.Add(e.slack()))
		for _, h := range all {
			if h := e.refusedUntil(sent.Add(r.Left), e.claim(h.Key, short)); h == nil {
				break
			}
		}
		return
	}
	e.Error("five sessions ran out before a renewal, sent in time, reached the store")
}

func anEndedSessionKeepsNothing(e *env) {
	session := e.begin(long)
	h := e.holdUnder(session, e.key("kept"), short)
	own := e.holdUnder(session, e.key("has its own end"), long)
	e.outlive(h)
	e.refused(e.claim(h.Key, short))
	e.endSession(session)
	e.soon(h.Key, short)
	e.gone("renewal of an ended session", e.renewSession(session))
	e.refused(e.claim(own.Key, short))
	e.endSession(session) // again
}

func aSessionThatWasNeverBegunIsGone(e *env) {
	never := begun{Session: store.Session{ID: rand.Text(), TTL: long}}
	e.gone("renewal of a session that was never begun", e.renewSession(never))
	e.gone("the same again", e.renewSession(never))
	e.endSession(never)
}

func aSessionsIDIsUsedOnce(e *env) {
	session := e.begin(long)
	if _, err := e.sessions().BeginSession(e.ctx(), session.Session); err == nil {
		e.Error("a session was begun under the ID of a live one")
	}
	e.endSession(session)
	if _, err := e.sessions().BeginSession(e.ctx(), session.Session); err == nil {
		e.Error("a session was begun under the ID of an ended one")
	}
	e.gone("renewal of the ended session", e.renewSession(session))
}

func aHolderTakenOutOfItsSessionHasItsOwnEnd(e *env) {
	session := e.begin(long)
	h := e.holdUnder(session, e.key("kept"), short)
	e.outlive(h)
	e.enter(&h, store.Renewal{TTL: 2 * short, Alone: true})
	if got := e.holder(h.Key); got.Session != "" {
		e.Errorf("a holder that was taken out of its session is shown under %q", got.Session)
	}
	e.takenUntil(h.Key, h.honoured(), h.replied.Add(2*short+e.slack()))
}

func aHolderReleasedForLaterLeavesItsSession(e *env) {
	session := e.begin(long)
	h := e.holdUnder(session, e.key("kept"), long)
	if err := e.end(h.Ref, 2*short).Err; err != nil {
		e.Fatalf("release: %v", err)
	}
	e.soon(h.Key, short)
	if err := e.renewSession(session); err != nil {
		e.Errorf("renewal of its session: %v", err)
	}
}

func aBreakIsToldToTheSession(e *env) {
	session := e.begin(long)
	h, other := e.holdUnder(session, e.key("broken"), long), e.holdUnder(session, e.key("other"), long)
	if err := e.store.Break(e.ctx(), h.Ref, "why not", false); err != nil {
		e.Fatalf("break: %v", err)
	}
	r, err := e.sessions().RenewSession(e.ctx(), session.Session)
	if err != nil || len(r.Broken) != 1 || r.Broken[h.ID] != "why not" {
		e.Errorf("the session was told %+v, %v; not that %s was broken", r, err, h.ID)
	}
	_, err = e.renew(h.Ref, long)
	e.broken("renewal of the broken holder", err, "why not")
	e.holds(other)
}

// swept calls Sweep until done returns true, as a client does repeatedly.
func (e *env) swept(done func() bool) {
	e.Helper()
	for give := time.Now().Add(bound); !done(); time.Sleep(10 * time.Millisecond) {
		if _, err := e.sessions().Sweep(e.ctx()); err != nil {
			e.Fatalf("sweep: %v", err)
		}
		if time.Now().After(give) {
			e.Fatalf("what a dead session left is not swept")
		}
	}
}

func aSweepRemovesWhatADeadSessionLeft(e *env) {
	session := e.begin(long)
	h := e.holdUnder(session, e.key("left"), short)
	e.outlive(h)
	e.endSession(session)
	e.swept(func() bool { return len(e.look(h.Key).Holders) == 0 })
	e.free(h.Key)
}

func aSweepLeavesTheLine(e *env) {
	session := e.begin(long)
	h := e.holdUnder(session, e.key("left"), short)
	waiter := e.waits(e.claim(h.Key, long))
	e.outlive(h)
	e.endSession(session)
	e.swept(func() bool { return len(e.look(h.Key).Holders) == 0 })
	e.staysFor(h.Key, waiter)
}

func aSweepLeavesAllOthersAlone(e *env) {
	dead, alive := e.begin(long), e.begin(long)
	left := e.holdUnder(dead, e.key("left"), short)
	taken := e.holdUnder(dead, e.key("taken"), short)
	own := e.holdUnder(dead, e.key("has its own end"), long)
	kept := e.holdUnder(alive, e.key("kept"), short)
	e.outlive(kept)
	e.endSession(dead)
	next := e.soon(taken.Key, long)
	e.swept(func() bool { return len(e.look(left.Key).Holders) == 0 })
	e.holds(next)
	e.holds(own)
	e.holds(kept)
}
