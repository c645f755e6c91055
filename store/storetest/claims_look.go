package storetest

import (
	"slices"
	"strings"

	"github.com/mongolock/mongolock/store"
)

var lookClaims = []claim{
	{"ALookAnswersInTheOrderOfItsKeys", aLookAnswersInTheOrderOfItsKeys},
	{"ALookAtNoKeysIsNoError", aLookAtNoKeysIsNoError},
	{"ALookChangesNothing", aLookChangesNothing},
}

var listClaims = []claim{
	{"AListHasTheKeysOfAPrefixInOrder", aListHasTheKeysOfAPrefixInOrder},
	{"AListTakesItsPrefixLiterally", aListTakesItsPrefixLiterally},
	{"AListShowsExpiredHolders", aListShowsExpiredHolders},
	{"AListCanBeEndedEarly", aListCanBeEndedEarly},
}

func aLookAnswersInTheOrderOfItsKeys(e *env) {
	b, a := e.hold(e.key("b"), long), e.hold(e.key("a"), long)
	free := e.key("free")
	keys := []string{b.Key, free, a.Key}
	all, err := e.store.Look(e.ctx(), keys)
	if err != nil || len(all) != len(keys) {
		e.Fatalf("%d keys got %d answers, %v", len(keys), len(all), err)
	}
	for i, status := range all {
		if status.Key != keys[i] || status.Now.IsZero() {
			e.Errorf("answer %d, for %q: %+v", i, keys[i], status)
		}
	}
	for i, h := range map[int]held{0: b, 2: a} {
		if len(all[i].Holders) != 1 || all[i].Holders[0].ID != h.ID {
			e.Errorf("answer %d does not show its holder: %+v", i, all[i])
		}
	}
	if s := all[1]; len(s.Holders) != 0 || !s.Free() || s.Mode != "" || len(s.Line) != 0 {
		e.Errorf("a key without a record: %+v", s)
	}
}

func aLookAtNoKeysIsNoError(e *env) {
	if all, err := e.store.Look(e.ctx(), nil); err != nil || len(all) != 0 {
		e.Errorf("a look at no keys: %d answers, %v", len(all), err)
	}
}

func aLookChangesNothing(e *env) {
	live, expired := e.hold(e.key("live"), long), e.hold(e.key("expired"), short)
	waiter := e.waits(e.claim(live.Key, long))
	e.outlive(expired)
	free := e.key("free")
	for _, key := range []string{live.Key, expired.Key, free} {
		e.unchanged(key, func() {
			for range 3 {
				e.look(key)
			}
			e.list(key)
		})
	}
	e.release(expired.Ref)
	e.places("release", e.release(live.Ref), waiter)
	e.hold(free, long)
}

// list returns the statuses of the keys that begin with prefix.
func (e *env) list(prefix string) []store.Status {
	e.Helper()
	var all []store.Status
	for status, err := range e.store.List(e.ctx(), prefix) {
		if err != nil {
			e.Fatalf("list of %q: %v", prefix, err)
		}
		all = append(all, status)
	}
	return all
}

// lists checks that a list of prefix has exactly these keys, in order.
func (e *env) lists(prefix string, want ...string) {
	e.Helper()
	var got []string
	for _, status := range e.list(prefix) {
		got = append(got, status.Key)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		e.Errorf("list of %q:\n got %q\nwant %q", prefix, got, want)
	}
}

func aListHasTheKeysOfAPrefixInOrder(e *env) {
	stem := e.key("list")
	ends := []string{"b", "a", "", "B", "a/2", "a/10", "é", "\U0001F512", "a b", "a\x00b", strings.Repeat("z", 800)}
	var all []string
	for _, end := range ends {
		e.hold(stem+end, long)
		all = append(all, stem+end)
	}
	e.hold("x"+stem, long)
	e.lists(stem, all...)
	e.lists(stem+"a/", stem+"a/2", stem+"a/10")
	e.lists(stem + "none")

	h := e.hold(stem+"detail", long)
	e.waits(e.claim(h.Key, long))
	got := e.list(h.Key)
	want := e.look(h.Key)
	if len(got) == 1 {
		want.Now = got[0].Now
	}
	if len(got) != 1 || !same(want, got[0]) {
		e.Errorf("a list shows %+v\na look %+v", got, want)
	}
}

func aListTakesItsPrefixLiterally(e *env) {
	stem := e.key("list")
	for _, odd := range []string{".", ".*", "[a-z]", "\\", "\\Q", "\\E", "(", "^", "$", "|", "+?", "%", "_", "*", "/", "\n", "A"} {
		e.hold(stem+odd+"1", long)
		e.lists(stem+odd, slices.DeleteFunc(e.keys(stem), func(key string) bool { return !strings.HasPrefix(key, stem+odd) })...)
	}
	e.lists("^" + stem)
	e.lists(stem + "a") // stem+"A1" has another letter
	e.lists(stem+".", stem+".1", stem+".*1")
}

func (e *env) keys(prefix string) []string {
	var keys []string
	for _, status := range e.list(prefix) {
		keys = append(keys, status.Key)
	}
	return keys
}

func aListShowsExpiredHolders(e *env) {
	stem := e.key("list")
	h := e.hold(stem+"expired", short)
	e.outlive(h)
	live := e.hold(stem+"live", long)
	var all []store.Status
	e.confirmed(func() store.Status {
		if all = e.list(stem); len(all) != 2 {
			e.Fatalf("list: %+v", all)
		}
		return all[0]
	})
	if e.only(all[0]).ID != h.ID || all[1].Free() || e.only(all[1]).ID != live.ID {
		e.Errorf("list: %+v", all)
	}
}

func aListCanBeEndedEarly(e *env) {
	stem := e.key("list")
	for _, end := range []string{"1", "2", "3"} {
		e.hold(stem+end, long)
	}
	for status, err := range e.store.List(e.ctx(), stem) {
		if err != nil || status.Key != stem+"1" {
			e.Errorf("the first of the list: %+v, %v", status, err)
		}
		break
	}
	// The store may be called from within the loop.
	for status, err := range e.store.List(e.ctx(), stem) {
		if err != nil {
			e.Fatalf("list: %v", err)
		}
		e.release(store.Ref{Key: status.Key, ID: e.only(status).ID, Mode: status.Mode})
	}
	e.lists(stem)
}
