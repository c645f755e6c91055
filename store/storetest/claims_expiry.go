package storetest

import (
	"time"
)

var expiryClaims = []claim{
	{"AHolderIsHonouredUntilItRunsOut", aHolderIsHonouredUntilItRunsOut},
	{"AHolderThatRanOutStaysToBeSeen", aHolderThatRanOutStaysToBeSeen},
	{"AHolderThatRanOutCanBeReleased", aHolderThatRanOutCanBeReleased},
	{"ATakeoverReplacesWhoRanOut", aTakeoverReplacesWhoRanOut},
	{"AStatusTellsTheStoresTime", aStatusTellsTheStoresTime},
}

func aHolderIsHonouredUntilItRunsOut(e *env) {
	h := e.hold(e.key("expiring"), 2*short)
	e.lasts(h)
	e.takenUntil(h.Key, h.honoured(), h.replied.Add(h.TTL+e.mode.slack()))
}

func aHolderThatRanOutStaysToBeSeen(e *env) {
	h := e.hold(e.key("expired"), short)
	e.outlive(h)
	status := e.look(h.Key)
	if !status.Free() {
		e.Errorf("still held: %+v", status)
	}
	if len(status.Holders) != 1 || status.Holders[0].ID != h.ID || status.Live(status.Holders[0]) {
		e.Errorf("the one that ran out is not to be seen: %+v", status)
	}
}

func aHolderThatRanOutCanBeReleased(e *env) {
	h := e.hold(e.key("expired"), short)
	e.outlive(h)
	e.release(h.Ref)
	e.free(h.Key)
	_, err := e.store.Release(e.ctx(), h.Ref, 0)
	e.gone("a second release", err)
}

func aTakeoverReplacesWhoRanOut(e *env) {
	old := e.hold(e.key("expired"), short)
	e.outlive(old)
	c := e.claim(old.Key, long)
	c.Owner, c.Note = "the next", "another note"
	h := e.granted(c)
	e.lasts(h)
	e.holds(h)
	who := e.holder(h.Key)
	if who.Owner != c.Owner || who.Note != c.Note || !who.Since.After(old.grant.Since) {
		e.Errorf("the new holder is %+v", who)
	}
	e.unchanged(h.Key, func() {
		_, err := e.renew(old.Ref, long)
		e.gone("renewal of who ran out", err)
		_, err = e.store.Release(e.ctx(), old.Ref, 0)
		e.gone("release of who ran out", err)
	})
}

func aStatusTellsTheStoresTime(e *env) {
	h := e.hold(e.key("time"), long)
	sent := time.Now()
	first := e.look(h.Key)
	middle := time.Now()
	time.Sleep(short)
	again := time.Now()
	second := e.look(h.Key)
	replied := time.Now()

	passed := second.Now.Sub(first.Now)
	if least, most := again.Sub(middle), replied.Sub(sent); passed < least-e.mode.slack() || passed > most+e.mode.slack() {
		e.Errorf("the store's clock went by %v while between %v and %v passed", passed, least, most)
	}
	if since := e.only(first).Since; first.Now.Before(since.Add(-e.mode.slack())) {
		e.Errorf("now, %v, is before the grant, %v", first.Now, since)
	}
}
