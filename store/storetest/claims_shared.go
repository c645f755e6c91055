package storetest

import (
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

var sharedClaims = []claim{
	{"ReadersShareAKey", readersShareAKey},
	{"ReadersThatJoinAtOnceAllHoldTheKey", readersThatJoinAtOnceAllHoldTheKey},
	{"AReaderIsHonouredUntilItExpires", aReaderIsHonouredUntilItExpires},
	{"AReaderIsUnaffectedWhenOthersComeAndGo", aReaderIsUnaffectedWhenOthersComeAndGo},
	{"TheLastSharerToLeaveRemovesTheRecord", theLastSharerToLeaveRemovesTheRecord},
	{"AKeptReaderStaysAndAffectsNoOther", aKeptReaderStaysAndAffectsNoOther},
	{"ABreakOfOneReaderAffectsNoOther", aBreakOfOneReaderAffectsNoOther},
	{"AnUndoOfOneReaderAffectsNoOther", anUndoOfOneReaderAffectsNoOther},
	{"OnlyAnExclusiveHolderCanBeTransferred", onlyAnExclusiveHolderCanBeTransferred},
	{"AnExclusiveTokenIsAboveThoseOfEarlierSharers", anExclusiveTokenIsAboveThoseOfEarlierSharers},
}

func (e *env) reader(key string, ttl time.Duration) store.Claim {
	c := e.claim(key, ttl)
	c.Mode, c.Limit = store.Shared, 0
	return c
}

func (e *env) permit(key string, n int, ttl time.Duration) store.Claim {
	c := e.claim(key, ttl)
	c.Mode, c.Limit = store.Permits, n
	return c
}

// readers grants key to n readers.
func (e *env) readers(key string, n int) (all []held) {
	e.Helper()
	for range n {
		all = append(all, e.granted(e.reader(key, long)))
	}
	return all
}

// heldBy checks that exactly these holders hold key.
func (e *env) heldBy(key string, want ...held) {
	e.Helper()
	status := e.look(key)
	var got, ids []string
	for _, h := range status.Holders {
		if status.Live(h) {
			got = append(got, h.ID)
		}
	}
	for _, h := range want {
		ids = append(ids, h.ID)
	}
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		e.Errorf("%q is held by %q, want %q", key, got, ids)
	}
}

func readersShareAKey(e *env) {
	key := e.key("shared")
	all := e.readers(key, 5)
	for _, h := range all {
		e.lasts(h)
	}
	status := e.look(key)
	if status.Mode != store.Shared || len(status.Holders) != len(all) || len(status.Line) != 0 {
		e.Errorf("status: %+v", status)
	}
	e.heldBy(key, all...)
	refusal := e.refused(e.claim(key, long))
	if len(refusal.Holders) != len(all) || refusal.Mode != store.Shared || refusal.Free() {
		e.Errorf("a refused writer is shown %+v", refusal.Status)
	}
	for i, h := range all {
		e.refused(e.claim(key, long)) // as long as one reader stays
		e.release(h.Ref)
		e.heldBy(key, all[i+1:]...)
	}
	e.hold(key, long)
	e.refused(e.reader(key, long))
	e.refused(e.permit(key, 3, long))
}

func readersThatJoinAtOnceAllHoldTheKey(e *env) {
	for range e.rounds(20, 2) {
		key := e.key("joined")
		joined := make([]held, 10)
		var wg sync.WaitGroup
		for i := range joined {
			c := e.reader(key, long)
			wg.Go(func() { joined[i] = e.join(c) })
		}
		wg.Wait()
		e.heldBy(key, joined...)
		for _, h := range joined {
			wg.Go(func() {
				if err := e.end(h.Ref, 0); err != nil {
					e.Errorf("release: %v", err)
				}
			})
		}
		wg.Wait()
		e.free(key)
	}
}

// join claims until it is granted. A store may refuse a join that lost too many races,
// if the status in the refusal shows that another attempt can succeed.
func (e *env) join(c store.Claim) held {
	for {
		h, err := e.try(c)
		if err == nil {
			return h
		}
		var refusal *store.HeldError
		if !errors.As(err, &refusal) || refusal.Mode == store.Exclusive && !refusal.Free() || len(refusal.Line) > 0 {
			e.Errorf("join of %q: %v", c.Key, err)
			return h
		}
		c.ID = rand.Text()
		time.Sleep(time.Millisecond)
	}
}

func aReaderIsHonouredUntilItExpires(e *env) {
	key := e.key("expiring")
	e.granted(e.reader(key, short))
	h := e.granted(e.reader(key, 2*short))
	e.lasts(h)
	e.takenUntil(key, h.honoured(), h.replied.Add(h.TTL+e.slack()))
}

// aReaderIsUnaffectedWhenOthersComeAndGo: the expiry that a renewal gave it stays,
// though others join, leave, repeat a release or expire.
func aReaderIsUnaffectedWhenOthersComeAndGo(e *env) {
	key := e.key("stays")
	stays := e.granted(e.reader(key, short*4))
	if _, err := e.renew(stays.Ref, 2*long); err != nil {
		e.Fatalf("renewal: %v", err)
	}
	before := e.holderOf(key, stays.ID)
	dies := e.granted(e.reader(key, short))
	leaves := e.granted(e.reader(key, long))
	e.release(leaves.Ref)
	err := e.end(leaves.Ref, 0)
	e.gone("a repeated release", err)
	e.outlive(dies)
	e.readers(key, 2) // which removes the expired holder
	_, err = e.renew(dies.Ref, long)
	e.gone("renewal of an expired holder", err)
	after := e.holderOf(key, stays.ID)
	if !after.ExpireAt.Equal(before.ExpireAt) || !after.Since.Equal(before.Since) || after.Owner != before.Owner {
		e.Errorf("the reader was %+v and became %+v", before, after)
	}
	if left, err := e.renew(stays.Ref, 2*long); err != nil || left < long {
		e.Errorf("renewal: %v, %v", left, err)
	}
}

func (e *env) holderOf(key, id string) store.Holder {
	e.Helper()
	status := e.look(key)
	for _, h := range status.Holders {
		if h.ID == id {
			return h
		}
	}
	e.Fatalf("%s is not among the holders of %q: %+v", id, key, status)
	return store.Holder{}
}

func theLastSharerToLeaveRemovesTheRecord(e *env) {
	key := e.key("left")
	all := e.readers(key, 3)
	for _, h := range all[:2] {
		e.release(h.Ref)
	}
	e.lists(key, key)
	e.release(all[2].Ref)
	e.lists(key)
	e.free(key)
}

func aKeptReaderStaysAndAffectsNoOther(e *env) {
	key := e.key("kept")
	kept, other := e.granted(e.reader(key, long)), e.granted(e.reader(key, long))
	if err := e.end(kept.Ref, 2*short); err != nil {
		e.Fatalf("release: %v", err)
	}
	e.heldBy(key, kept, other)
	_, err := e.renew(kept.Ref, long)
	e.gone("renewal of a released holder", err)
	time.Sleep(2*short + e.slack())
	e.heldBy(key, other)
	e.refused(e.claim(key, long))
	e.release(other.Ref)
	e.soon(key, long)
}

func aBreakOfOneReaderAffectsNoOther(e *env) {
	key := e.key("broken")
	all := e.readers(key, 3)
	if err := e.store.Break(e.ctx(), all[0].Ref, "stuck", false); err != nil {
		e.Fatalf("break: %v", err)
	}
	e.heldBy(key, all...)
	_, err := e.renew(all[0].Ref, long)
	e.broken("renewal", err, "stuck")
	if err := e.store.Break(e.ctx(), all[0].Ref, "stuck", true); err != nil {
		e.Fatalf("break now: %v", err)
	}
	e.heldBy(key, all[1:]...)
	for _, h := range all[1:] {
		if _, err := e.renew(h.Ref, long); err != nil {
			e.Errorf("renewal of another reader: %v", err)
		}
	}
	for _, h := range all[1:] {
		if err := e.store.Break(e.ctx(), h.Ref, "stuck", true); err != nil {
			e.Fatalf("break now: %v", err)
		}
	}
	e.lists(key)
}

func anUndoOfOneReaderAffectsNoOther(e *env) {
	key := e.key("undone")
	stays, landed := e.granted(e.reader(key, long)), e.granted(e.reader(key, long))
	never := e.reader(key, long)
	e.settle(landed.Ref, nil)
	e.heldBy(key, stays)
	e.undo(never.Ref, nil)
	e.heldBy(key, stays)
	_, err := e.renew(landed.Ref, long)
	e.gone("renewal after undo", err)
	if _, err := e.renew(stays.Ref, long); err != nil {
		e.Errorf("renewal of the reader that stays: %v", err)
	}
	e.settle(stays.Ref, nil)
	e.lists(key) // the last reader is gone
}

func onlyAnExclusiveHolderCanBeTransferred(e *env) {
	key := e.key("shared")
	h := e.granted(e.reader(key, long))
	alone := e.hold(e.key("alone"), long)
	for _, c := range []struct {
		from store.Ref
		to   store.Claim
	}{
		{h.Ref, e.claim(key, long)},
		{h.Ref, e.reader(key, long)},
		{alone.Ref, e.reader(alone.Key, long)},
	} {
		e.unchanged(c.from.Key, func() {
			if _, err := e.transfer(c.from, c.to); err == nil || !errors.Is(err, store.ErrNotApplied) && !errors.Is(err, store.ErrGone) {
				e.Errorf("transfer from %s to %s: %v", c.from.Mode, c.to.Mode, err)
			}
		})
	}
}

func anExclusiveTokenIsAboveThoseOfEarlierSharers(e *env) {
	key := e.key("token")
	var highest int64
	for i := range e.rounds(50, 5) {
		for _, h := range e.readers(key, 1+i%3) {
			if h.inTime() {
				highest = max(highest, h.grant.Token)
			}
			defer e.end(h.Ref, 0)
			e.release(h.Ref)
		}
		h := e.hold(key, long)
		if h.inTime() && h.grant.Token <= highest {
			e.Errorf("granted with token %d after %d", h.grant.Token, highest)
		}
		highest = max(highest, h.grant.Token)
		e.release(h.Ref)
	}
}
