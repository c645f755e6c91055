package storetest

import (
	"errors"

	"github.com/mongolock/mongolock/store"
)

var foreignClaims = []claim{
	{"AForeignRecordAnswersErrForeignAndStays", aForeignRecordAnswersErrForeignAndStays},
	{"AForeignRecordInAHoldersPlaceStays", aForeignRecordInAHoldersPlaceStays},
	{"ALookReportsForeignRecordsAmongOthers", aLookReportsForeignRecordsAmongOthers},
	{"AListLeavesForeignRecordsOut", aListLeavesForeignRecordsOut},
}

// shapes is how many foreign records a claim tries, so that a Stranger can vary them.
const shapes = 4

func (e *env) foreign(key string) (intact func() error) {
	e.Helper()
	stranger, _ := as[Stranger](e.store)
	intact, err := stranger.Foreign(key)
	if err != nil {
		e.Fatalf("putting a foreign record under %q: %v", key, err)
	}
	return intact
}

// isForeign makes every call of h on a key with a foreign record.
func (e *env) isForeign(h held, intact func() error) {
	e.Helper()
	for _, c := range []store.Claim{e.claim(h.Key, long), e.placed(e.claim(h.Key, long))} {
		_, acquire := e.try(c)
		_, renew := e.renew(h.Ref, long)
		_, transfer := e.transfer(h.Ref, e.claim(h.Key, long))
		release := e.end(h.Ref, 0)
		keep := e.end(h.Ref, long)
		_, leave := e.store.Leave(e.ctx(), h.Key, c.Place)
		for what, err := range map[string]error{
			"claim": acquire, "renewal": renew, "transfer": transfer, "release": release, "release, kept": keep, "leave": leave,
			"break":     e.store.Break(e.ctx(), h.Ref, "why not", false),
			"break now": e.store.Break(e.ctx(), h.Ref, "why not", true),
		} {
			if !errors.Is(err, store.ErrForeign) {
				e.Errorf("%s on a foreign record: got %v, want ErrForeign", what, err)
			}
		}
	}
	from := e.claim(h.Key, long).Ref
	for _, f := range []*store.Ref{nil, &from} {
		// Nothing of the claim is there, so a store may also answer that it is settled.
		if settled, err := e.store.Undo(e.ctx(), h.Ref, f); err != nil && !errors.Is(err, store.ErrForeign) {
			e.Errorf("undo on a foreign record: settled %v, %v", settled, err)
		}
	}
	if err := intact(); err != nil {
		e.Errorf("the foreign record of %q was changed: %v", h.Key, err)
	}
}

func aForeignRecordAnswersErrForeignAndStays(e *env) {
	for range shapes {
		key := e.key("foreign")
		e.isForeign(held{Claim: e.claim(key, long)}, e.foreign(key))
	}
}

func aForeignRecordInAHoldersPlaceStays(e *env) {
	for range shapes {
		h := e.hold(e.key("foreign"), long)
		e.isForeign(h, e.foreign(h.Key))
	}
}

func aLookReportsForeignRecordsAmongOthers(e *env) {
	h := e.hold(e.key("held"), long)
	foreign, free := e.key("foreign"), e.key("free")
	intact := e.foreign(foreign)
	all, err := e.store.Look(e.ctx(), []string{foreign, h.Key, free})
	if !errors.Is(err, store.ErrForeign) || len(all) != 3 {
		e.Fatalf("%d answers, %v", len(all), err)
	}
	for i, key := range []string{foreign, h.Key, free} {
		if all[i].Key != key {
			e.Errorf("answer %d is for %q, not %q", i, all[i].Key, key)
		}
	}
	if len(all[0].Holders) != 0 || len(all[1].Holders) != 1 || all[1].Holders[0].ID != h.ID || len(all[2].Holders) != 0 {
		e.Errorf("answers: %+v", all)
	}
	if err := intact(); err != nil {
		e.Errorf("the foreign record was changed: %v", err)
	}
}

func aListLeavesForeignRecordsOut(e *env) {
	stem := e.key("list")
	e.hold(stem+"1", long)
	for _, end := range []string{"0", "2", "4"} {
		e.foreign(stem + end)
	}
	e.hold(stem+"3", long)
	e.lists(stem, stem+"1", stem+"3")
}
