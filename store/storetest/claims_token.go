package storetest

import (
	"errors"
	"time"

	"github.com/mongolock/mongolock/store"
)

var tokenClaims = []claim{
	{"TokensIncreaseHoweverAHolderEnds", tokensIncreaseHoweverAHolderEnds},
	{"AHolderThatYieldsIsShown", aHolderThatYieldsIsShown},
}

var purgeClaims = []claim{
	{"TokensIncreaseAcrossRemovalByHand", tokensIncreaseAcrossRemovalByHand},
	{"AHolderRemovedByHandIsGone", aHolderRemovedByHandIsGone},
}

func tokensIncreaseHoweverAHolderEnds(e *env) {
	const tiny = 100 * time.Millisecond
	key := e.key("token")
	var highest tokens
	for i := range e.rounds(1000, 60) {
		ttl := long
		if i%6 == 0 {
			ttl = tiny // not released; it expires
		}
		h := e.soon(key, ttl)
		highest.add(e, h)
		switch i % 6 {
		case 1:
			e.release(h.Ref)
		case 2:
			e.keep(h, tiny)
		case 3:
			next := e.passOn(h.Ref, e.claim(key, long))
			highest.add(e, next)
			e.release(next.Ref)
		case 4:
			e.undo(h.Ref, nil)
		case 5:
			if err := e.store.Break(e.ctx(), h.Ref, "why not", true); err != nil {
				e.Fatalf("break: %v", err)
			}
		}
	}
}

// tokens checks that the tokens of one key rise in the order of the grants.
type tokens struct{ last int64 }

func (t *tokens) add(e *env, h held) {
	e.Helper()
	if !h.inTime() {
		return // the engine would not accept the grant, and gives it back
	}
	if h.grant.Token <= t.last {
		e.Errorf("%q was granted with token %d after %d", h.Key, h.grant.Token, t.last)
	}
	t.last = h.grant.Token
}

func aHolderThatYieldsIsShown(e *env) {
	if store.FeedOf(e.store) == nil {
		e.Log("the store has no feed: nobody is told")
		return
	}
	c := e.claim(e.key("yields"), long)
	c.Yields = "here"
	h := e.granted(c)
	if refusal := e.refused(e.claim(h.Key, long)); e.only(refusal.Status).Yields != "here" {
		e.Errorf("the refusal does not say that the holder yields: %+v", refusal)
	}
	if _, err := e.renew(h.Ref, long); err != nil {
		e.Fatalf("renew: %v", err)
	}
	if status := e.look(h.Key); e.only(status).Yields != "here" {
		e.Errorf("the holder yields, and is shown after a renewal as %+v", status)
	}
	next := e.passOn(h.Ref, e.claim(h.Key, long))
	if status := e.look(next.Key); e.only(status).Yields != "" {
		e.Errorf("the next holder does not yield, and is shown as %+v", status)
	}
}

func (e *env) purge(key string) {
	e.Helper()
	purger, _ := as[Purger](e.store)
	if err := purger.Purge(key); err != nil {
		e.Fatalf("removal of %q by hand: %v", key, err)
	}
}

func tokensIncreaseAcrossRemovalByHand(e *env) {
	key := e.key("token")
	var highest tokens
	for range e.rounds(100, 10) {
		highest.add(e, e.hold(key, long))
		e.purge(key)
		h := e.hold(key, long)
		highest.add(e, h)
		e.release(h.Ref)
	}
}

func aHolderRemovedByHandIsGone(e *env) {
	h := e.hold(e.key("purged"), long)
	e.purge(h.Key)
	e.free(h.Key)
	_, renewal := e.renew(h.Ref, long)
	_, transfer := e.transfer(h.Ref, e.claim(h.Key, long))
	release := e.end(h.Ref, 0)
	for what, err := range map[string]error{
		"renewal": renewal, "transfer": transfer, "release": release,
		"break": e.store.Break(e.ctx(), h.Ref, "why not", true),
	} {
		if !errors.Is(err, store.ErrGone) {
			e.Errorf("%s: got %v, want ErrGone", what, err)
		}
	}
	e.free(h.Key)
	e.hold(h.Key, long)
}
