package storetest

import (
	"time"

	"github.com/mongolock/mongolock/store"
)

var expiryClaims = []claim{
	{"AHolderIsHonouredUntilItExpires", aHolderIsHonouredUntilItExpires},
	{"AnExpiredHolderIsStillShown", anExpiredHolderIsStillShown},
	{"AnExpiredHolderCanBeReleased", anExpiredHolderCanBeReleased},
	{"ATakeoverReplacesTheExpiredHolder", aTakeoverReplacesTheExpiredHolder},
	{"AStatusShowsTheStoresTime", aStatusShowsTheStoresTime},
}

func aHolderIsHonouredUntilItExpires(e *env) {
	h := e.hold(e.key("expiring"), 2*short)
	e.lasts(h)
	e.takenUntil(h.Key, h.honoured(), h.replied.Add(h.TTL+e.slack()))
}

func anExpiredHolderIsStillShown(e *env) {
	h := e.hold(e.key("expired"), short)
	e.outlive(h)
	status := e.confirmed(func() store.Status { return e.look(h.Key) })
	if len(status.Holders) != 1 || status.Holders[0].ID != h.ID || status.Live(status.Holders[0]) {
		e.Errorf("the expired holder is not shown: %+v", status)
	}
}

// confirmed reads a status whose holders have all run out, until they are known to be over.
// In real time the store may not be sure of it for a while: any slow call on it, also of a test
// beside this one, may have been the election of another primary.
func (e *env) confirmed(read func() store.Status) store.Status {
	e.Helper()
	give := time.Now()
	if e.mode == Real {
		give = give.Add(patience)
	}
	for {
		status := read()
		for _, h := range status.Holders {
			if status.Live(h) && !status.Confirming(h) {
				e.Fatalf("still held: %+v", status)
			}
		}
		if status.Free() {
			return status
		}
		if !time.Now().Before(give) {
			e.Fatalf("still not confirmed: %+v", status)
		}
		time.Sleep(short / 4) // real: a confirmation takes a hello, or two looks a TTL apart
	}
}

func anExpiredHolderCanBeReleased(e *env) {
	h := e.hold(e.key("expired"), short)
	e.outlive(h)
	e.release(h.Ref)
	e.free(h.Key)
	err := e.end(h.Ref, 0)
	e.gone("a second release", err)
}

func aTakeoverReplacesTheExpiredHolder(e *env) {
	old := e.hold(e.key("expired"), short)
	e.outlive(old)
	c := e.claim(old.Key, long)
	c.Owner, c.Note = "the next", "another note"
	h := e.granted(c)
	e.lasts(h)
	e.holds(h)
	holder := e.holder(h.Key)
	if holder.Owner != c.Owner || holder.Note != c.Note || !holder.Since.After(old.grant.Since) {
		e.Errorf("the new holder is %+v", holder)
	}
	e.unchanged(h.Key, func() {
		_, err := e.renew(old.Ref, long)
		e.gone("renewal of the expired holder", err)
		err = e.end(old.Ref, 0)
		e.gone("release of the expired holder", err)
	})
}

func aStatusShowsTheStoresTime(e *env) {
	h := e.hold(e.key("time"), long)
	sent := time.Now()
	first := e.look(h.Key)
	middle := time.Now()
	time.Sleep(short)
	again := time.Now()
	second := e.look(h.Key)
	replied := time.Now()

	passed := second.Now.Sub(first.Now)
	if least, most := again.Sub(middle), replied.Sub(sent); passed < least-e.slack() || passed > most+e.slack() {
		e.Errorf("the store's clock advanced by %v while %v to %v passed", passed, least, most)
	}
	if since := e.only(first).Since; first.Now.Before(since.Add(-e.slack())) {
		e.Errorf("Now, %v, is before the grant, %v", first.Now, since)
	}
}
