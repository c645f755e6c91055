package storetest

import (
	"errors"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

var turnClaims = []claim{
	{"AKeyIsGrantedInTheOrderOfItsLine", aKeyIsGrantedInTheOrderOfItsLine},
	{"AnExpiredKeyIsGrantedInTheOrderOfItsLine", anExpiredKeyIsGrantedInTheOrderOfItsLine},
	{"ContendersAreServedInTheOrderOfTheirLine", contendersAreServedInTheOrderOfTheirLine},
	{"AGrantTakesOutThePlacesThatItPasses", aGrantTakesOutThePlacesThatItPasses},
	{"ARefusedClaimPassesNobody", aRefusedClaimPassesNobody},
	{"OneThatWasPassedStandsBeforeThoseThatCameLater", oneThatWasPassedStandsBeforeThoseThatCameLater},
	{"ItIsShownSinceWhenAKeyIsFree", itIsShownSinceWhenAKeyIsFree},
	{"AStalePlaceIsPassed", aStalePlaceIsPassed},
	{"AReleaseTellsWhoStillCounts", aReleaseTellsWhoStillCounts},
	{"AWaiterThatIsSeenIsNotPassed", aWaiterThatIsSeenIsNotPassed},
	{"AFullLineLosesStalePlaces", aFullLineLosesStalePlaces},
}

var sharedTurnClaims = []claim{
	{"AWaitingWriterKeepsNewSharersOut", aWaitingWriterKeepsNewSharersOut},
	{"ReadersBeforeTheFirstWriterComeTogether", readersBeforeTheFirstWriterComeTogether},
	{"AsManyPermitsAreOfferedAsAreFree", asManyPermitsAreOfferedAsAreFree},
	{"AHeavyClaimIsNotOvertaken", aHeavyClaimIsNotOvertaken},
	{"AWriterAmongSharersIsStaleSooner", aWriterAmongSharersIsStaleSooner},
	{"AHeavyClaimAmongPermitsIsStaleSooner", aHeavyClaimAmongPermitsIsStaleSooner},
	{"AMismatchLeavesNoPlace", aMismatchLeavesNoPlace},
	{"OneThatCouldNotHaveTheKeyIsNotPassed", oneThatCouldNotHaveTheKeyIsNotPassed},
}

func aKeyIsGrantedInTheOrderOfItsLine(e *env) {
	key := e.key("awaited")
	h := e.hold(key, long)
	a, b := e.waits(e.claim(key, long)), e.waits(e.claim(key, long))
	e.waits(a) // the key is held
	e.places("release", e.release(h.Ref), a, b)

	refusal := e.refused(e.anew(b)) // it is offered to the first
	if !refusal.Free() || refusal.Ahead() != 1 {
		e.Errorf("the second in line is shown %+v", refusal.Status)
	}
	e.refused(e.claim(key, long))
	last := e.waits(e.claim(key, long))
	e.line(key, a, b, last)

	for line := []store.Claim{a, b, last}; len(line) > 0; line = line[1:] {
		for _, c := range line[1:] {
			e.waits(c)
		}
		next := e.granted(e.anew(line[0]))
		e.places("grant", next.grant.Line, line[1:]...)
		e.line(key, line[1:]...)
		e.holds(next)
		e.release(next.Ref)
	}
	e.lists(key)
	e.hold(key, long)
}

func anExpiredKeyIsGrantedInTheOrderOfItsLine(e *env) {
	h := e.hold(e.key("expired"), short)
	a, err := e.try(e.placed(e.claim(h.Key, long)))
	if err == nil {
		e.Log("the holder expired before anybody could wait; nothing was shown")
		return
	}
	b := e.waits(e.claim(h.Key, long))
	e.outlive(h)
	e.waits(b)
	e.refused(e.claim(h.Key, long))
	next := e.granted(e.anew(a.Claim))
	e.places("grant", next.grant.Line, b)
	e.line(h.Key, b)
	e.holds(next)
}

func contendersAreServedInTheOrderOfTheirLine(e *env) {
	h := e.hold(e.key("contended"), long)
	var line []store.Claim
	for range e.rounds(8, 4) {
		line = append(line, e.waits(e.claim(h.Key, long)))
	}
	e.release(h.Ref)
	var mu sync.Mutex // protects served
	var served []store.Place
	var wg sync.WaitGroup
	give := time.Now().Add(bound)
	for _, c := range line {
		wg.Go(func() {
			for time.Now().Before(give) {
				h, err := e.try(e.anew(c))
				if err == nil {
					mu.Lock()
					served = append(served, c.Place)
					mu.Unlock()
					err = e.end(h.Ref, 0)
				}
				switch {
				case err == nil:
					return
				case !errors.Is(err, store.ErrHeld):
					e.Errorf("contending for %q: %v", c.Key, err)
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	wg.Wait()
	e.places("contenders", served, line...)
}

// later lets a moment go by, which a store that counts in milliseconds can tell from the one before.
func (e *env) later() { time.Sleep(5 * time.Millisecond) }

// passes returns the claim of a waiter that passes those who were not seen since the key was freed.
func (e *env) passes(c store.Claim) store.Claim {
	e.Helper()
	c = e.anew(c)
	if c.Unseen = e.look(c.Key).OfferedSince(); c.Unseen.IsZero() {
		e.Fatalf("it is not shown since when %q is free", c.Key)
	}
	return c
}

func aGrantTakesOutThePlacesThatItPasses(e *env) {
	for dead := 1; dead <= 5; dead += 2 {
		h := e.hold(e.key("awaited"), long)
		var line []store.Claim
		for range dead + 2 {
			line = append(line, e.waits(e.claim(h.Key, long)))
		}
		b, c := line[dead], line[dead+1]
		e.release(h.Ref)
		e.later()
		e.waits(b)
		next := e.granted(e.passes(b))
		e.places("grant", next.grant.Line, c)
		e.waits(line[0]) // it comes, and is the last
		e.line(h.Key, c, line[0])
		e.release(next.Ref)
		e.waits(line[0])
		e.granted(e.anew(c))
	}
}

// aRefusedClaimPassesNobody: one whose key is held, or before whom one was seen since the key is free.
func aRefusedClaimPassesNobody(e *env) {
	h := e.hold(e.key("awaited"), long)
	a, b, c := e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long))
	held := e.anew(c)
	held.Unseen = e.look(h.Key).Now
	e.waits(held)
	e.line(h.Key, a, b, c)
	e.release(h.Ref)
	e.later()
	e.waits(b) // it lives
	e.waits(e.passes(c))
	e.line(h.Key, a, b, c)
	none := e.passes(c)
	none.Place = ""
	e.refused(none) // it does not wait
	e.line(h.Key, a, b, c)
	e.granted(e.anew(a))
}

func oneThatWasPassedStandsBeforeThoseThatCameLater(e *env) {
	h := e.hold(e.key("awaited"), long)
	first, slow, next, last := e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long)), e.claim(h.Key, long)
	e.later()
	last = e.waits(last)
	stood := map[store.Place]time.Time{}
	for _, w := range e.look(h.Key).Line {
		stood[w.Place] = w.Since
	}
	e.release(h.Ref)
	e.later()
	e.waits(next)
	passed := e.granted(e.passes(next))
	e.line(h.Key, last)
	last.Since = stood[last.Place]
	e.waits(last) // it is there
	e.line(h.Key, last)
	slow.Since = stood[slow.Place]
	slow = e.waits(slow)
	e.line(h.Key, slow, last)
	e.waits(slow) // and keeps its place
	e.line(h.Key, slow, last)
	for i, w := range e.look(h.Key).Line {
		if want := i == 0; w.Slow != want || !w.Since.Equal(stood[w.Place]) {
			e.Errorf("in line is %+v, slow %v; want slow %v, since %v", w, w.Slow, want, stood[w.Place])
		}
	}
	e.leave(first) // it is not there
	e.release(passed.Ref)
	e.waits(last)
	e.granted(e.anew(slow))
	e.line(h.Key, last)
}

// itIsShownSinceWhenAKeyIsFree: since a holder left, or ran out, and for how long it had the key.
func itIsShownSinceWhenAKeyIsFree(e *env) {
	h := e.hold(e.key("awaited"), long)
	a := e.waits(e.claim(h.Key, long))
	e.later()
	seen := e.look(h.Key).Now
	e.later()
	used := 1500 * time.Millisecond
	e.ends("an awaited key", store.ReleaseRequest{Ref: h.Ref, Used: used}, 0, a)
	e.later()
	s := e.look(h.Key)
	if since := s.OfferedSince(); !since.After(seen) || since.After(s.Now) {
		e.Errorf("free since %v, which is neither after %v nor before %v", since, seen, s.Now)
	}
	if d := s.Used - used; d < -time.Millisecond || d > time.Millisecond {
		e.Errorf("used for %v, want %v", s.Used, used)
	}
	h = e.granted(e.anew(a))
	e.waits(e.claim(h.Key, long))
	e.later()
	if err := e.store.Break(e.ctx(), h.Ref, "why not", true); err != nil {
		e.Fatalf("break: %v", err)
	}
	if again := e.look(h.Key).OfferedSince(); !again.After(s.Now) {
		e.Errorf("free since %v after a break, which came after %v", again, s.Now)
	}
}

// unseen lets so much time go by since a waiter was seen. In real time a store that cannot age
// a place is not asked for more.
func (e *env) unseen(c store.Claim, d time.Duration) {
	e.Helper()
	if e.mode == Virtual {
		time.Sleep(d)
		return
	}
	ager, ok := as[Ager](e.store)
	if !ok {
		e.Skip("needs virtual, as places get stale only in time")
	}
	if err := ager.Age(c.Key, c.Place, d); err != nil {
		e.Fatalf("aging a place of %q: %v", c.Key, err)
	}
}

func aStalePlaceIsPassed(e *env) {
	const most, nearly = store.PlaceFor, 2 * time.Second
	h := e.hold(e.key("awaited"), long)
	a, b, c := e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long))
	e.release(h.Ref)
	e.unseen(a, most-nearly)
	e.waits(b) // a still counts
	e.waits(c)
	e.refused(e.claim(h.Key, long))
	e.unseen(a, 2*nearly)
	e.waits(c) // b comes before c
	next := e.granted(e.anew(b))
	e.places("grant", next.grant.Line, c)
	e.line(h.Key, c)

	e.release(next.Ref)
	e.unseen(c, most+nearly)
	last := e.hold(h.Key, long) // nobody counts
	e.waits(c)
	e.line(h.Key, c)
	e.release(last.Ref)
}

func aReleaseTellsWhoStillCounts(e *env) {
	h := e.hold(e.key("awaited"), 10*long)
	dead, alive := e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long))
	e.unseen(dead, store.PlaceFor+2*time.Second)
	e.waits(alive)
	e.ends("the awaited", store.ReleaseRequest{Ref: h.Ref}, 0, alive)
}

// aWaiterThatIsSeenIsNotPassed: neither one that asks again, nor one that comes late but before
// the next.
func aWaiterThatIsSeenIsNotPassed(e *env) {
	h := e.hold(e.key("awaited"), 10*long)
	a, b := e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long))
	for range 4 {
		for _, c := range []store.Claim{a, b} {
			e.unseen(c, store.PlaceFor/3)
		}
		e.waits(a)
		e.waits(b)
	}
	e.release(h.Ref)
	e.unseen(a, store.PlaceFor-2*time.Second)
	e.waits(b)
	e.unseen(a, 4*time.Second)
	next := e.granted(e.anew(a))
	e.release(next.Ref)
	e.granted(e.anew(b))
}

// aFullLineLosesStalePlaces: the dead keep nobody out of the line of a key that one holds for long.
func aFullLineLosesStalePlaces(e *env) {
	h := e.hold(e.key("awaited"), 10*long)
	var line []store.Claim
	for range store.LineMost {
		line = append(line, e.waits(e.claim(h.Key, long)))
	}
	dead := line[5]
	e.unseen(dead, store.PlaceFor+2*time.Second)
	late := e.waits(e.claim(h.Key, long))
	if status := e.look(h.Key); stands(status, dead.Place) || len(status.Line) > store.LineMost || status.Line[len(status.Line)-1].Place != late.Place {
		e.Errorf("the line of %d: %+v", len(status.Line), status.Line)
	}
}

func aWaitingWriterKeepsNewSharersOut(e *env) {
	for _, kind := range []func(key string) store.Claim{
		func(key string) store.Claim { return e.reader(key, long) },
		func(key string) store.Claim { return e.permit(key, 10, long) },
	} {
		h := e.granted(kind(e.key("awaited")))
		other := e.granted(kind(h.Key))
		writer := e.waits(e.claim(h.Key, long))
		if refusal := e.refused(kind(h.Key)); refusal.Ahead() != 1 {
			e.Errorf("the refused sharer is shown %+v", refusal.Status)
		}
		sharer := e.waits(kind(h.Key))
		e.line(h.Key, writer, sharer)
		if _, err := e.renew(h.Ref, long); err != nil {
			e.Errorf("renewal of the live sharer: %v", err)
		}
		e.heldBy(h.Key, h, other)
		e.ends("a sharer", store.ReleaseRequest{Ref: h.Ref}, 1, writer, sharer)
		e.waits(writer)
		e.ends("the last sharer", store.ReleaseRequest{Ref: other.Ref}, 0, writer, sharer)
		e.waits(sharer)
		next := e.granted(e.anew(writer))
		e.waits(sharer)
		e.places("release of the writer", e.release(next.Ref), sharer)
		e.granted(e.anew(sharer))
		e.line(h.Key)
		e.granted(kind(h.Key)) // nobody waits any more
	}
}

func readersBeforeTheFirstWriterComeTogether(e *env) {
	key := e.key("awaited")
	h := e.hold(key, long)
	r1, r2 := e.waits(e.reader(key, long)), e.waits(e.reader(key, long))
	writer, r3 := e.waits(e.claim(key, long)), e.waits(e.reader(key, long))
	e.places("release", e.release(h.Ref), r1, r2, writer, r3)
	e.waits(writer)
	e.waits(r3)
	e.refused(e.reader(key, long))
	second := e.granted(e.anew(r2)) // before the first has come
	e.places("grant", second.grant.Line, r1, writer, r3)
	e.waits(r3)
	e.refused(e.reader(key, long))
	first := e.granted(e.anew(r1))
	e.heldBy(key, first, second)
	e.line(key, writer, r3)
	e.release(first.Ref)
	e.waits(writer)
	e.release(second.Ref)
	e.waits(r3)
	next := e.granted(e.anew(writer))
	e.waits(r3)
	e.release(next.Ref)
	e.granted(e.anew(r3))
}

func asManyPermitsAreOfferedAsAreFree(e *env) {
	key := e.key("permits")
	var all []held
	for range 3 {
		all = append(all, e.granted(e.permit(key, 3, long)))
	}
	a, b := e.waits(e.permit(key, 3, long)), e.waits(e.permit(key, 3, long))
	c, d := e.waits(e.permit(key, 3, long)), e.waits(e.permit(key, 3, long))
	e.ends("a permit", store.ReleaseRequest{Ref: all[0].Ref}, 2, a, b, c, d)
	e.waits(b)
	e.refused(e.permit(key, 3, long))
	e.ends("a permit", store.ReleaseRequest{Ref: all[1].Ref}, 1, a, b, c, d)
	e.waits(c)
	second := e.granted(e.anew(b)) // before the first has come
	e.places("grant", second.grant.Line, a, c, d)
	e.waits(c)
	first := e.granted(e.anew(a))
	e.heldBy(key, all[2], first, second)
	e.waits(c)
	e.release(all[2].Ref)
	e.waits(d)
	third := e.granted(e.anew(c))
	e.heldBy(key, first, second, third)
	e.line(key, d)
}

// aHeavyClaimIsNotOvertaken: the first in line waits until enough permits are free, and nobody has
// them before it.
func aHeavyClaimIsNotOvertaken(e *env) {
	key := e.key("weights")
	one, other := e.granted(e.weighing(key, 2, 4, long)), e.granted(e.weighing(key, 2, 4, long))
	heavy, light, last := e.waits(e.weighing(key, 3, 4, long)), e.waits(e.permit(key, 4, long)), e.waits(e.permit(key, 4, long))
	e.ends("2 permits", store.ReleaseRequest{Ref: one.Ref}, 2, heavy, light, last)
	e.waits(light)
	e.refused(e.permit(key, 4, long))
	e.waits(heavy)
	e.ends("2 permits", store.ReleaseRequest{Ref: other.Ref}, 0, heavy, light, last)
	e.waits(last) // 3 and 1 before it
	next := e.granted(e.anew(light))
	e.waits(last)
	h := e.granted(e.anew(heavy))
	e.heldBy(key, next, h)
	e.waits(last)
	e.release(next.Ref)
	e.granted(e.anew(last))
}

func aWriterAmongSharersIsStaleSooner(e *env) {
	const most, nearly = store.ReserveFor, 2 * time.Second
	h := e.granted(e.reader(e.key("awaited"), 10*long))
	writer := e.waits(e.claim(h.Key, long))
	reader := e.waits(e.reader(h.Key, long))
	e.unseen(writer, most-nearly)
	e.waits(reader)
	e.refused(e.reader(h.Key, long))
	e.unseen(writer, 2*nearly)
	next := e.granted(e.anew(reader))
	e.heldBy(h.Key, h, next)

	e.waits(writer) // it is alive after all
	e.waits(e.reader(h.Key, long))
	e.release(h.Ref)
	e.release(next.Ref)
	e.unseen(writer, most+nearly)
	e.refused(e.reader(h.Key, long)) // now it waits like any other
	e.granted(e.anew(writer))
}

func aHeavyClaimAmongPermitsIsStaleSooner(e *env) {
	const most, nearly = store.ReserveFor, 2 * time.Second
	h := e.granted(e.permit(e.key("weights"), 4, 10*long))
	heavy, light := e.waits(e.weighing(h.Key, 4, 4, long)), e.waits(e.permit(h.Key, 4, long))
	e.unseen(heavy, most-nearly)
	e.waits(light)
	e.unseen(heavy, 2*nearly)
	e.heldBy(h.Key, h, e.granted(e.anew(light)))
}

// aMismatchLeavesNoPlace: a claim that cannot share the key with its holders does not wait for
// them, even if it waited for others before.
func aMismatchLeavesNoPlace(e *env) {
	h := e.hold(e.key("modes"), long)
	reader := e.waits(e.reader(h.Key, long))
	permit, last := e.waits(e.permit(h.Key, 2, long)), e.waits(e.reader(h.Key, long))
	e.release(h.Ref)
	e.granted(e.anew(reader))
	for range 2 { // it is in line, and then it is not
		if _, err := e.try(e.anew(permit)); !errors.Is(err, store.ErrModeMismatch) {
			e.Errorf("a claim of a permit of a key with readers: %v", err)
		}
		e.line(h.Key, last)
	}
	e.granted(e.anew(last))
}

// oneThatCouldNotHaveTheKeyIsNotPassed: a writer among sharers, and whoever wants more permits than are free.
func oneThatCouldNotHaveTheKeyIsNotPassed(e *env) {
	reader := e.granted(e.reader(e.key("shared"), long))
	other := e.granted(e.reader(reader.Key, long))
	writer, late := e.waits(e.claim(reader.Key, long)), e.waits(e.reader(reader.Key, long))
	e.release(other.Ref)
	e.later()
	e.waits(late)
	e.waits(e.passes(late))
	e.line(reader.Key, writer, late)

	one := e.granted(e.permit(e.key("weights"), 3, long))
	two := e.granted(e.permit(one.Key, 3, long))
	heavy, dead, light := e.waits(e.weighing(one.Key, 3, 3, long)), e.waits(e.permit(one.Key, 3, long)), e.waits(e.permit(one.Key, 3, long))
	e.release(one.Ref)
	e.later()
	e.waits(e.passes(light))
	e.line(one.Key, heavy, dead, light)
	e.leave(heavy)
	e.later()
	e.heldBy(one.Key, two, e.granted(e.passes(light)))
	e.line(one.Key)
}
