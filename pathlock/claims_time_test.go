package pathlock_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/pathlock"
)

func brief(path string) pathlock.Request {
	r := ask(path)
	r.Timeouts = []time.Duration{short}
	return r
}

// over returns when a brief lock must have run out, given when it was requested and when it was
// granted. A storage that knows its clock as an interval may be late by one round trip, which
// takes no longer than the request did.
func (e *env) over(sent, replied time.Time) time.Time {
	return replied.Add(short + slack + replied.Sub(sent))
}

var timeClaims = []claim{
	{"ALockLastsAsLongAsItsAnswerSaysAndNotMuchLonger", func(e *env) {
		sent := time.Now()
		l := e.lock(brief("/a"))
		replied := time.Now()
		if l.Left > short || l.Left < short-replied.Sub(sent)-slack {
			e.Errorf("%v are left of %v", l.Left, short)
		}
		over := e.over(sent, replied)
		for ; ; time.Sleep(10 * time.Millisecond) {
			asked := time.Now()
			_, err := e.other.Lock(e.ctx(), ask("/a"))
			switch now := time.Now(); {
			case err == nil && now.Before(sent.Add(l.Left)):
				e.Errorf("granted to another %v before its time was over", sent.Add(l.Left).Sub(now))
			case err == nil:
			case !errors.Is(err, pathlock.ErrConflict):
				e.Error(err)
			case asked.After(over):
				e.Errorf("held %v after its time was over", asked.Sub(replied)-short)
			default:
				continue
			}
			return
		}
	}},
	{"ALockThatHasRunOutCountsForNothingThoughItsRecordExists", func(e *env) {
		sent := time.Now()
		l := e.lock(brief("/a"))
		time.Sleep(time.Until(e.over(sent, time.Now())))
		if all := e.locks(); len(all) != 0 {
			e.Errorf("there are %+v", all)
		}
		if err := e.tree.Confirm(e.ctx(), nil, pathlock.Modify("/a")); err != nil {
			e.Errorf("it forbids a write: %v", err)
		}
		if _, err := e.tree.Refresh(e.ctx(), l.Token); !errors.Is(err, pathlock.ErrUnknownToken) {
			e.Errorf("it was revived: %v", err)
		}
		if err := e.tree.Release(e.ctx(), l.Token); !errors.Is(err, pathlock.ErrUnknownToken) {
			e.Errorf("it was released: %v", err)
		}
	}},
	{"ARefreshChangesTheExpiryAndNothingElse", func(e *env) {
		var l, fresh pathlock.Lock
		var sent time.Time
		for tries := 0; fresh.Token == ""; tries++ {
			r := brief(fmt.Sprint("/", tries))
			r.Owner = []byte("mine")
			sent = time.Now()
			l = e.lock(r)
			var err error
			fresh, err = e.other.Refresh(e.ctx(), l.Token, time.Minute)
			if late := time.Since(sent) >= l.Left; err != nil && (!late || tries == 10) {
				e.Fatalf("%v after it was asked for: %v", time.Since(sent), err)
			}
		}
		if fresh.Token != l.Token || fresh.Path != l.Path || fresh.Mode != l.Mode || fresh.Depth != l.Depth ||
			string(fresh.Owner) != "mine" || !fresh.Since.Equal(l.Since) || fresh.Timeout != time.Minute {
			e.Errorf("it was %+v and is %+v", l, fresh)
		}
		time.Sleep(time.Until(e.over(sent, time.Now())))
		if _, err := e.other.Lock(e.ctx(), ask(l.Path)); !errors.Is(err, pathlock.ErrConflict) {
			e.Errorf("it ran out in spite of its refresh: %v", err)
		}
	}},
	{"ARefreshMayShortenTheTime", func(e *env) {
		l := e.lock(ask("/a"))
		sent := time.Now()
		if _, err := e.tree.Refresh(e.ctx(), l.Token, short); err != nil {
			e.Fatal(err)
		}
		time.Sleep(time.Until(e.over(sent, time.Now())))
		if _, err := e.other.Lock(e.ctx(), ask("/a")); err != nil {
			e.Error(err)
		}
	}},
	{"ARenewalOfAHoldDoesNotShortenTheTime", func(e *env) {
		l := e.lock(ask("/a"))
		h, err := e.other.Resume(e.ctx(), l)
		if err != nil {
			e.Fatal(err)
		}
		for _, timeout := range []time.Duration{time.Hour, pathlock.Infinite} {
			longer, err := e.tree.Refresh(e.ctx(), l.Token, timeout)
			if err != nil {
				e.Fatal(err)
			}
			if err := h.Renew(e.ctx()); err != nil {
				e.Error(err)
			}
			if found := e.find(l.Token); found.Timeout != timeout || found.ExpireAt.Before(longer.ExpireAt) {
				e.Errorf("%+v became %+v", longer, found)
			}
		}
		if err := h.Release(); err != nil {
			e.Error(err)
		}
	}},
	{"AReleasedLockIsNotRevived", func(e *env) {
		l := e.lock(ask("/a"))
		if err := e.tree.Release(e.ctx(), l.Token); err != nil {
			e.Fatal(err)
		}
		if _, err := e.other.Refresh(e.ctx(), l.Token); !errors.Is(err, pathlock.ErrUnknownToken) {
			e.Errorf("refresh: %v", err)
		}
		if err := e.other.Release(e.ctx(), l.Token); !errors.Is(err, pathlock.ErrUnknownToken) {
			e.Errorf("release: %v", err)
		}
	}},
}
