package storetest

import (
	"strings"

	"github.com/mongolock/mongolock/store"
)

var dataClaims = []claim{
	{"AnyTextCanBeAKey", anyTextCanBeAKey},
	{"OwnerNoteAndReasonCanBeAnyText", ownerNoteAndReasonCanBeAnyText},
	{"ReturnedValuesBelongToTheCaller", returnedValuesBelongToTheCaller},
	{"ArgumentsAreNotChanged", argumentsAreNotChanged},
}

// odd has texts that a store could mistake for something else.
var odd = []string{
	" ", "  x  ", "\t\r\n", "\x00", "a\x00b", ".", "..", "a.b", "a..b", ".a", "$", "$x", "$set", "$$NOW", "$a.b",
	"/", "/a/", "../x", `\`, `\x00`, "%00", "%s", "#", "?", "*", `"`, `'; --`, "{}", `{"$gt":""}`,
	"null", "true", "0", "-1", "_id", "mongolock", "\u0301", "é", "e\u0301", "ß", "\u200b", "\ufeff", "\ufffd", "\U0001F512\U0001F469\u200d\U0001F680",
}

func anyTextCanBeAKey(e *env) {
	for _, shape := range append(odd, strings.Repeat("k", 1024-26), strings.Repeat("\U0001F512", (1024-26)/4)) {
		h := e.hold(e.key(shape), long)
		if status := e.look(h.Key); status.Key != h.Key || len(status.Holders) != 1 || status.Holders[0].ID != h.ID {
			e.Errorf("look at %q: %+v", h.Key, status)
		}
		if refusal := e.refused(e.claim(h.Key, long)); refusal.Key != h.Key {
			e.Errorf("the refusal of %q names %q", h.Key, refusal.Key)
		}
		e.lists(h.Key, h.Key)
		if _, err := e.renew(h.Ref, long); err != nil {
			e.Errorf("renewal of %q: %v", h.Key, err)
		}
		to := e.passOn(h.Ref, e.claim(h.Key, long))
		e.release(to.Ref)
		e.free(h.Key)
	}
}

func ownerNoteAndReasonCanBeAnyText(e *env) {
	for _, text := range append(odd, "", strings.Repeat("n", 1024)) {
		c := e.claim(e.key("text"), long)
		c.Owner, c.Note = text, text
		h := e.granted(c)
		refusal := e.refused(e.claim(c.Key, long))
		c.Ref = e.claim(c.Key, long).Ref
		to := e.passOn(h.Ref, c)
		if err := e.store.Break(e.ctx(), to.Ref, text, false); err != nil {
			e.Fatalf("break because %q: %v", text, err)
		}
		look := e.look(c.Key)
		list := e.list(c.Key)
		if len(list) != 1 {
			e.Fatalf("list of %q: %+v", c.Key, list)
		}
		for _, holder := range []store.Holder{e.only(refusal.Status), e.only(look), e.only(list[0])} {
			if holder.Owner != text || holder.Note != text {
				e.Errorf("%q became owner %q, note %q", text, holder.Owner, holder.Note)
			}
		}
		if why := e.only(look).Broken; why != text {
			e.Errorf("the reason %q became %q", text, why)
		}
		_, err := e.renew(to.Ref, long)
		e.broken("renewal", err, text)
		e.release(to.Ref)
	}
}

func returnedValuesBelongToTheCaller(e *env) {
	h := e.hold(e.key("data"), long)
	e.waits(e.claim(h.Key, long))
	overwrite := func(all ...store.Status) {
		if len(all) != 1 || len(all[0].Holders) != 1 || len(all[0].Line) != 1 {
			e.Fatalf("want one holder, and one who waits: %+v", all)
		}
		all[0].Line[0] = store.Waiter{Owner: "overwritten"}
		all[0].Holders[0] = store.Holder{ID: "overwritten", Owner: "overwritten", Broken: "overwritten"}
	}
	e.unchanged(h.Key, func() {
		overwrite(e.look(h.Key))
		overwrite(e.refused(e.claim(h.Key, long)).Status)
		overwrite(e.list(h.Key)...)
	})
	first := e.store.Renew(e.ctx(), []store.Renewal{{Ref: h.Ref, TTL: long}})
	second := e.store.Renew(e.ctx(), []store.Renewal{{Ref: h.Ref, TTL: long}})
	first[0].Left = 0
	if second[0].Err != nil || second[0].Left == 0 {
		e.Errorf("two renewals share one answer: %+v", second[0])
	}
	e.release(h.Ref)
}

func argumentsAreNotChanged(e *env) {
	h, other := e.hold(e.key("data"), long), e.hold(e.key("data"), long)
	batch := []store.Renewal{{Ref: h.Ref, TTL: long}, {Ref: other.Ref, TTL: 2 * long}}
	keys := []string{h.Key, other.Key}
	from := h.Ref
	e.store.Renew(e.ctx(), batch)
	if _, err := e.store.Look(e.ctx(), keys); err != nil {
		e.Errorf("look: %v", err)
	}
	e.undo(e.claim(h.Key, long).Ref, &from)
	if batch[0].Ref != h.Ref || batch[1].Ref != other.Ref || batch[0].TTL != long || keys[0] != h.Key || keys[1] != other.Key || from != h.Ref {
		e.Errorf("the store changed its arguments: %+v, %q, %+v", batch, keys, from)
	}
}
