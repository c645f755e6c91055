package storetest

import (
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

var lineClaims = []claim{
	{"ARefusedClaimJoinsTheLineAtItsEnd", aRefusedClaimJoinsTheLineAtItsEnd},
	{"AWaiterThatAsksAgainKeepsItsPlace", aWaiterThatAsksAgainKeepsItsPlace},
	{"AllThatJoinAtOnceStandInLine", allThatJoinAtOnceStandInLine},
	{"AFullLineTakesNoFurtherPlace", aFullLineTakesNoFurtherPlace},
	{"LeaveTakesAPlaceOutOfTheLine", leaveTakesAPlaceOutOfTheLine},
	{"TheRecordStaysForItsLineAndGoesWithIt", theRecordStaysForItsLineAndGoesWithIt},
	{"TheLineOutlivesItsHolderHoweverThatEnds", theLineOutlivesItsHolderHoweverThatEnds},
	{"TheLineStaysAsHoldersAreRenewedAndReplaced", theLineStaysAsHoldersAreRenewedAndReplaced},
	{"AKeptKeyKeepsItsLine", aKeptKeyKeepsItsLine},
	{"HintsChangeNoAnswer", hintsChangeNoAnswer},
}

// placed returns the claim of a waiter, with a place of its own.
func (e *env) placed(c store.Claim) store.Claim {
	c.Place = store.NewPlace(c.Mode, c.Limit, c.Weight, "here")
	return c
}

// anew is a waiter's next claim. Its place is the same.
func (e *env) anew(c store.Claim) store.Claim {
	c.ID = rand.Text()
	return c
}

// waits makes the claim of a waiter, which must be refused, and stand in line. A claim that has
// a place asks once more.
func (e *env) waits(c store.Claim) store.Claim {
	e.Helper()
	if c.Place == "" {
		c = e.placed(c)
	}
	c = e.anew(c)
	if refusal := e.refused(c); refusal.Place != c.Place || !stands(refusal.Status, c.Place) {
		e.Errorf("a waiter's place is %q, says its refusal, not %q: %+v", refusal.Place, c.Place, refusal.Status)
	}
	return c
}

func stands(s store.Status, p store.Place) bool {
	return slices.ContainsFunc(s.Line, func(w store.Waiter) bool { return w.Place == p })
}

// places checks who waits, by an answer.
func (e *env) places(what string, got []store.Place, want ...store.Claim) {
	e.Helper()
	var all []store.Place
	for _, c := range want {
		all = append(all, c.Place)
	}
	if !slices.Equal(got, all) {
		e.Errorf("%s: the line is %q, want %q", what, got, all)
	}
}

// inLine checks who waits, by a status.
func (e *env) inLine(what string, s store.Status, want ...store.Claim) {
	e.Helper()
	var got []store.Place
	for _, w := range s.Line {
		got = append(got, w.Place)
	}
	e.places(what, got, want...)
}

// line checks who waits for a key.
func (e *env) line(key string, want ...store.Claim) {
	e.Helper()
	e.inLine("look", e.look(key), want...)
}

func (e *env) leave(c store.Claim) store.Status {
	e.Helper()
	status, err := e.store.Leave(e.ctx(), c.Key, c.Place)
	if err != nil || status.Key != c.Key {
		e.Fatalf("leaving the line of %q: %+v, %v", c.Key, status, err)
	}
	return status
}

func aRefusedClaimJoinsTheLineAtItsEnd(e *env) {
	h := e.hold(e.key("awaited"), long)
	var line []store.Claim
	for _, owner := range []string{"the first", "", "the third: \x00 $x.a"} {
		c := e.claim(h.Key, long)
		c.Owner = owner
		line = append(line, e.waits(c))
		e.line(h.Key, line...)
	}
	for i, w := range e.look(h.Key).Line {
		// one update of MongoDB reads its clock for each date
		if w.Owner != line[i].Owner || w.Since.IsZero() || w.Seen.Before(w.Since.Add(-time.Second)) {
			e.Errorf("the waiter %q is shown as %+v", line[i].Owner, w)
		}
	}
	e.unchanged(h.Key, func() {
		if refusal := e.refused(e.claim(h.Key, long)); refusal.Place != "" {
			e.Errorf("a claim that does not wait has the place %q", refusal.Place)
		}
	})
	e.holds(h)
}

func aWaiterThatAsksAgainKeepsItsPlace(e *env) {
	h := e.hold(e.key("awaited"), long)
	a, b := e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long))
	before := e.look(h.Key).Line
	time.Sleep(short / 10)
	for range 3 {
		e.waits(a)
	}
	e.line(h.Key, a, b)
	after := e.look(h.Key).Line
	if len(after) != 2 || !after[0].Since.Equal(before[0].Since) || !after[0].Seen.After(before[0].Seen) {
		e.Errorf("the waiter was %+v, and after it asked again %+v", before[0], after)
	} else if !after[1].Seen.Equal(before[1].Seen) {
		e.Errorf("another waiter was seen %+v, and now %+v", before[1], after[1])
	}
}

func allThatJoinAtOnceStandInLine(e *env) {
	for range e.rounds(20, 2) {
		h := e.hold(e.key("awaited"), long)
		var wg sync.WaitGroup
		var want []store.Place
		for range 10 {
			c := e.placed(e.claim(h.Key, long))
			want = append(want, c.Place)
			for range 2 {
				wg.Go(func() { _, _ = e.try(e.anew(c)) })
			}
		}
		wg.Wait()
		var got []store.Place
		for _, w := range e.look(h.Key).Line {
			got = append(got, w.Place)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			e.Errorf("in line are %q\nwant %q", got, want)
		}
	}
}

func aFullLineTakesNoFurtherPlace(e *env) {
	h := e.hold(e.key("awaited"), long)
	var line []store.Claim
	for range store.LineMost {
		line = append(line, e.waits(e.claim(h.Key, long)))
	}
	late := e.placed(e.claim(h.Key, long))
	refusal := e.refused(late)
	if refusal.Place != "" {
		e.Errorf("the line is full, and a further claim has the place %q", refusal.Place)
	}
	e.inLine("the refusal", refusal.Status, line...)
	e.line(h.Key, line...)
	e.waits(line[len(line)-1]) // who stands there keeps its place
	e.leave(line[7])
	line = append(slices.Delete(line, 7, 8), e.waits(late))
	e.line(h.Key, line...)
}

func leaveTakesAPlaceOutOfTheLine(e *env) {
	h := e.hold(e.key("awaited"), long)
	a, b, c := e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long))
	for range 2 { // the second finds it gone
		status := e.leave(b)
		e.inLine("leave", status, a, c)
		if len(status.Holders) != 1 || status.Free() {
			e.Errorf("the key that was left is %+v", status)
		}
	}
	e.line(h.Key, a, c)
	e.holds(h)
	e.leave(c)
	e.leave(a)
	e.line(h.Key)
	e.holds(h)
	e.unchanged(h.Key, func() { e.leave(a) })
	free := e.placed(e.claim(e.key("free"), long))
	e.leave(free)
	e.lists(free.Key)
}

func theRecordStaysForItsLineAndGoesWithIt(e *env) {
	key := e.key("awaited")
	h := e.hold(key, long)
	a, b := e.waits(e.claim(key, long)), e.waits(e.claim(key, long))
	e.ends("an awaited key", store.ReleaseRequest{Ref: h.Ref}, 0, a, b)
	status := e.look(key)
	if len(status.Holders) != 0 || !status.Free() || status.Mode != "" {
		e.Errorf("the record that stays for its line: %+v", status)
	}
	e.inLine("look", status, a, b)
	e.lists(key, key)
	e.leave(a)
	e.lists(key, key)
	if status := e.leave(b); len(status.Line) != 0 || !status.Free() {
		e.Errorf("the key that the last waiter left: %+v", status)
	}
	e.lists(key)

	h = e.hold(key, long)
	next := e.granted(func() store.Claim { c := e.waits(e.claim(key, long)); e.release(h.Ref); return e.anew(c) }())
	e.ends("the key of one who waited", store.ReleaseRequest{Ref: next.Ref}, 0)
	e.lists(key)
}

// theLineOutlivesItsHolderHoweverThatEnds: by an Undo or a break.
func theLineOutlivesItsHolderHoweverThatEnds(e *env) {
	for what, end := range map[string]func(held){
		"undo": func(h held) { e.undo(h.Ref, nil) },
		"undo of a transfer": func(h held) {
			to := e.passOn(h.Ref, e.claim(h.Key, long))
			e.undo(to.Ref, &h.Ref)
		},
		"break": func(h held) {
			if err := e.store.Break(e.ctx(), h.Ref, "why not", true); err != nil {
				e.Errorf("break: %v", err)
			}
		},
	} {
		h := e.hold(e.key(what), long)
		a := e.waits(e.claim(h.Key, long))
		end(h)
		e.undo(a.Ref, nil) // a refused claim, too
		e.staysFor(h.Key, a)
	}
}

// staysFor checks that a key without holders is kept for one who waits, and no longer.
func (e *env) staysFor(key string, c store.Claim) {
	e.Helper()
	e.free(key)
	e.line(key, c)
	e.lists(key, key)
	e.refused(e.claim(key, long))
	e.release(e.granted(e.anew(c)).Ref)
	e.lists(key)
}

func theLineStaysAsHoldersAreRenewedAndReplaced(e *env) {
	h := e.hold(e.key("awaited"), long)
	a, b, c := e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long))
	seen := e.look(h.Key).Line
	renewed := e.store.Renew(e.ctx(), []store.Renewal{{Ref: h.Ref, TTL: 2 * long}})[0]
	if renewed.Err != nil {
		e.Fatalf("renewal: %v", renewed.Err)
	}
	e.places("renewal", renewed.Line, a, b, c)
	next := e.passOn(h.Ref, e.claim(h.Key, long))
	e.places("transfer", next.grant.Line, a, b, c)
	if err := e.store.Break(e.ctx(), next.Ref, "why not", false); err != nil {
		e.Fatalf("break: %v", err)
	}
	if !same(store.Status{Line: seen}, store.Status{Line: e.look(h.Key).Line}) {
		e.Errorf("the line was\n%+v\nand is\n%+v", seen, e.look(h.Key).Line)
	}
	e.release(next.Ref)

	first := e.granted(e.anew(a))
	last := e.passOn(first.Ref, e.anew(c)) // a waiter that is in line
	e.places("transfer to one who waits", last.grant.Line, b)
	e.line(h.Key, b)
}

func aKeptKeyKeepsItsLine(e *env) {
	h := e.hold(e.key("kept"), long)
	a, b := e.waits(e.claim(h.Key, long)), e.waits(e.claim(h.Key, long))
	keep := time.Since(h.sent) + 2*short + e.slack()
	e.ends("a kept key", store.ReleaseRequest{Ref: h.Ref, Keep: keep}, 1, a, b)
	e.sleepUntil(h.replied.Add(keep + e.slack()))
	e.refused(e.claim(h.Key, long))
	e.waits(b)
	for give := time.Now().Add(bound); ; time.Sleep(short / 10) { // the store may confirm first that the time is over
		if next, err := e.try(e.anew(a)); err == nil {
			e.places("grant", next.grant.Line, b)
			return
		} else if time.Now().After(give) {
			e.Fatalf("claim of the first in line: %v", err)
		}
	}
}

// hintsChangeNoAnswer: a claim that expects the key to be held, to be its own by now, or to wait
// for it in line, is answered like any other; so is a release that expects waiters.
func hintsChangeNoAnswer(e *env) {
	for what, hint := range map[string]func(*store.Claim){
		"held":    func(c *store.Claim) { c.Held = true },
		"in line": func(c *store.Claim) { c.InLine = true },
		"offered": func(c *store.Claim) { c.Offered = true },
		"both":    func(c *store.Claim) { c.Offered, c.InLine = true, true },
		"full":    func(c *store.Claim) { c.Full = true },
	} {
		hinted := func(c store.Claim) store.Claim {
			hint(&c)
			return c
		}
		free := e.granted(hinted(e.placed(e.claim(e.key("free "+what), long))))
		e.ends("a key that nobody waits for", store.ReleaseRequest{Ref: free.Ref, Line: true}, 0)
		e.lists(free.Key)

		h := e.hold(e.key("held "+what), long)
		a, b := e.waits(hinted(e.claim(h.Key, long))), e.waits(hinted(e.claim(h.Key, long)))
		e.waits(a)
		e.line(h.Key, a, b)
		e.ends("an awaited key", store.ReleaseRequest{Ref: h.Ref, Line: what != "held"}, 0, a, b)
		e.waits(b)
		next := e.granted(e.anew(a))
		e.places("grant", next.grant.Line, b)
		e.waits(hinted(a))
		e.line(h.Key, b, a)

		out := e.hold(e.key("expired "+what), short)
		e.outlive(out)
		if next := e.granted(hinted(e.placed(e.claim(out.Key, long)))); next.grant.Token <= out.grant.Token {
			e.Errorf("token %d after %d", next.grant.Token, out.grant.Token)
		}
	}
}
