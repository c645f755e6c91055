package storetest

import (
	"time"

	"github.com/mongolock/mongolock/store"
)

var writerClaims = []claim{
	{"AWritersWordKeepsNewSharersOut", aWritersWordKeepsNewSharersOut},
	{"AWritersWordOutlivesTheLastReader", aWritersWordOutlivesTheLastReader},
	{"AWritersWordExpires", aWritersWordExpires},
	{"ASharersWordKeepsNobodyOut", aSharersWordKeepsNobodyOut},
	{"AWordLeftOnAnExclusiveHolderKeepsNobodyOut", aWordLeftOnAnExclusiveHolderKeepsNobodyOut},
	{"AGrantedWriterLeavesNoWord", aGrantedWriterLeavesNoWord},
	{"EverySharersReleaseReportsThatSomebodyWaits", everySharersReleaseReportsThatSomebodyWaits},
	{"AWriterCanTakeItsWordBack", aWriterCanTakeItsWordBack},
}

// writerWaits leaves the word of a writer, and returns the status of the key after it.
func (e *env) writerWaits(key string, want time.Duration) store.Status {
	e.Helper()
	c := e.claim(key, long)
	c.Want = want
	return e.refused(c).Status
}

func aWritersWordKeepsNewSharersOut(e *env) {
	for _, kind := range []func(key string) store.Claim{
		func(key string) store.Claim { return e.reader(key, long) },
		func(key string) store.Claim { return e.permit(key, 10, long) },
	} {
		h := e.granted(kind(e.key("awaited")))
		if status := e.writerWaits(h.Key, long); !status.Reserved() || !status.Wanted {
			e.Errorf("the status does not show the writer's word: %+v", status)
		}
		if refusal := e.refused(kind(h.Key)); !refusal.Reserved() {
			e.Errorf("the refused sharer is not shown the writer: %+v", refusal.Status)
		}
		if _, err := e.renew(h.Ref, long); err != nil {
			e.Errorf("renewal of the live sharer: %v", err)
		}
		e.heldBy(h.Key, h)
	}
}

func aWritersWordOutlivesTheLastReader(e *env) {
	key := e.key("awaited")
	all := e.readers(key, 2)
	e.writerWaits(key, long)
	for _, h := range all {
		e.release(h.Ref)
		e.refused(e.reader(key, long))
	}
	e.refused(e.permit(key, 3, long))
	if status := e.look(key); !status.Free() || !status.Reserved() || len(status.Holders) != 0 {
		e.Errorf("the record that stays for the writer: %+v", status)
	}
	h := e.hold(key, long)
	e.refused(e.reader(key, long))
	e.release(h.Ref)
	e.granted(e.reader(key, long)) // the writer's word is gone
}

func aWritersWordExpires(e *env) {
	h := e.granted(e.reader(e.key("awaited"), long))
	told := time.Now()
	status := e.writerWaits(h.Key, short)
	if d := status.ExclusiveWantedUntil.Sub(status.Now); d <= 0 || d > short+e.slack() {
		e.Errorf("a word for %v stands for %v", short, d)
	}
	e.refusedUntil(told.Add(short), e.reader(h.Key, long))
	e.sleepUntil(told.Add(short + e.slack()))
	for range e.rounds(1, 20) { // a store that knows its server's clock as an interval may honour a word longer, by a slow trip
		if _, err := e.try(e.reader(h.Key, long)); err == nil {
			return
		}
		time.Sleep(e.slack())
	}
	e.Errorf("a word for %v still keeps readers out after %v", short, time.Since(told))
}

func aSharersWordKeepsNobodyOut(e *env) {
	key := e.key("full")
	h := e.granted(e.permit(key, 1, short))
	for _, c := range []store.Claim{e.permit(key, 1, long), e.permit(key, 1, long)} {
		c.Want = long
		if refusal := e.refusedUntil(h.honoured(), c); refusal != nil && (refusal.Reserved() || !refusal.Wanted) {
			e.Errorf("the refusal with the word: %+v", refusal.Status)
		}
	}
	e.outlive(h)
	e.granted(e.permit(key, 1, long))
}

// aWordLeftOnAnExclusiveHolderKeepsNobodyOut: a writer that waits for an exclusive
// holder must not keep readers out once that holder has expired.
func aWordLeftOnAnExclusiveHolderKeepsNobodyOut(e *env) {
	h := e.hold(e.key("held"), 3*short)
	if status := e.writerWaits(h.Key, long); status.Reserved() || !status.Wanted {
		e.Errorf("the status with the word: %+v", status)
	}
	e.outlive(h)
	e.readers(h.Key, 2)
}

// aGrantedWriterLeavesNoWord: a writer that waited, was granted the key and died does
// not keep readers out once it has expired.
func aGrantedWriterLeavesNoWord(e *env) {
	reader := e.granted(e.reader(e.key("awaited"), long))
	e.writerWaits(reader.Key, long)
	e.release(reader.Ref)
	writer := e.hold(reader.Key, short)
	if status := e.look(reader.Key); status.Reserved() {
		e.Errorf("the key is still reserved: %+v", status)
	}
	e.outlive(writer)
	e.readers(reader.Key, 2)
}

// everySharersReleaseReportsThatSomebodyWaits: not only the last one's, because a waiter
// for a permit waits for any of them.
func everySharersReleaseReportsThatSomebodyWaits(e *env) {
	key := e.key("awaited")
	alone := e.granted(e.reader(key, long))
	if wanted, err := e.store.Release(e.ctx(), alone.Ref, 0); wanted || err != nil {
		e.Errorf("release while nobody waits: wanted %v, %v", wanted, err)
	}
	var all []held
	for range 3 {
		all = append(all, e.granted(e.permit(key, 3, long)))
	}
	c := e.permit(key, 3, long)
	c.Want = long
	e.refused(c)
	for _, h := range all {
		if wanted, err := e.store.Release(e.ctx(), h.Ref, 0); !wanted || err != nil {
			e.Errorf("release while somebody waits: wanted %v, %v", wanted, err)
		}
	}
}

// aWriterCanTakeItsWordBack holds for stores that are Withdrawers. A longer word than
// the one that is taken back is another writer's, and stays.
func aWriterCanTakeItsWordBack(e *env) {
	words := store.WithdrawerOf(e.store)
	if words == nil {
		e.Log("the store is no Withdrawer; nothing was shown")
		return
	}
	h := e.granted(e.reader(e.key("awaited"), long))
	first := e.writerWaits(h.Key, short*2)
	second := e.writerWaits(h.Key, long)
	if err := words.Withdraw(e.ctx(), h.Key, first.ExclusiveWantedUntil); err != nil {
		e.Errorf("withdraw: %v", err)
	}
	e.refused(e.reader(h.Key, long))
	if err := words.Withdraw(e.ctx(), h.Key, second.ExclusiveWantedUntil); err != nil {
		e.Errorf("withdraw: %v", err)
	}
	next := e.granted(e.reader(h.Key, long))
	e.heldBy(h.Key, h, next)

	last := e.writerWaits(h.Key, long)
	e.release(h.Ref)
	e.release(next.Ref)
	e.refused(e.reader(h.Key, long))
	if err := words.Withdraw(e.ctx(), h.Key, last.ExclusiveWantedUntil); err != nil {
		e.Errorf("withdraw: %v", err)
	}
	e.granted(e.reader(h.Key, long))
	if err := words.Withdraw(e.ctx(), e.key("nobody's"), last.ExclusiveWantedUntil); err != nil {
		e.Errorf("withdraw on a key without a record: %v", err)
	}
}
