package pathlocktest

import (
	"errors"
	"time"

	"github.com/mongolock/mongolock/pathlock"
)

func brief(path string) pathlock.Request {
	r := ask(path)
	r.Timeouts = []time.Duration{short}
	return r
}

var timeClaims = []claim{
	{"ALockLastsAsLongAsItsAnswerSaysAndNotMuchLonger", func(e *env) {
		sent := time.Now()
		l := e.lock(brief("/a"))
		replied := time.Now()
		if l.Left > short || l.Left < short-replied.Sub(sent)-slack {
			e.Errorf("%v are left of %v", l.Left, short)
		}
		for ; ; time.Sleep(10 * time.Millisecond) {
			asked := time.Now()
			_, err := e.other.Lock(e.ctx(), ask("/a"))
			switch now := time.Now(); {
			case err == nil && now.Before(sent.Add(l.Left)):
				e.Errorf("granted to another %v before its time was over", sent.Add(l.Left).Sub(now))
			case err == nil:
			case !errors.Is(err, pathlock.ErrConflict):
				e.Error(err)
			case asked.After(replied.Add(short + slack)):
				e.Errorf("held %v after its time was over", asked.Sub(replied)-short)
			default:
				continue
			}
			return
		}
	}},
	{"WhatHasRunOutCountsForNothingThoughItIsThere", func(e *env) {
		l := e.lock(brief("/a"))
		time.Sleep(short + slack)
		if all := e.locks(); len(all) != 0 {
			e.Errorf("there are %+v", all)
		}
		if err := e.tree.Confirm(e.ctx(), nil, pathlock.Modify("/a")); err != nil {
			e.Errorf("it forbids a write: %v", err)
		}
		if _, err := e.tree.Refresh(e.ctx(), l.Token); !errors.Is(err, pathlock.ErrUnknownToken) {
			e.Errorf("it was revived: %v", err)
		}
		if err := e.tree.Release(e.ctx(), "/a", l.Token); !errors.Is(err, pathlock.ErrUnknownToken) {
			e.Errorf("it was released: %v", err)
		}
	}},
	{"RefreshSetsANewTimerAndNothingElse", func(e *env) {
		r := brief("/a")
		r.Owner = []byte("mine")
		var l, fresh pathlock.Lock
		for tries := 0; fresh.Token == ""; tries++ {
			sent := time.Now()
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
		time.Sleep(short + slack)
		if _, err := e.other.Lock(e.ctx(), ask("/a")); !errors.Is(err, pathlock.ErrConflict) {
			e.Errorf("it ran out all the same: %v", err)
		}
	}},
	{"ARefreshMayShortenTheTime", func(e *env) {
		l := e.lock(ask("/a"))
		if _, err := e.tree.Refresh(e.ctx(), l.Token, short); err != nil {
			e.Fatal(err)
		}
		time.Sleep(short + slack)
		if _, err := e.other.Lock(e.ctx(), ask("/a")); err != nil {
			e.Error(err)
		}
	}},
	{"ReleasedIsNotRevived", func(e *env) {
		l := e.lock(ask("/a"))
		if err := e.tree.Release(e.ctx(), "/a", l.Token); err != nil {
			e.Fatal(err)
		}
		if _, err := e.other.Refresh(e.ctx(), l.Token); !errors.Is(err, pathlock.ErrUnknownToken) {
			e.Errorf("refresh: %v", err)
		}
		if err := e.other.Release(e.ctx(), "/a", l.Token); !errors.Is(err, pathlock.ErrUnknownToken) {
			e.Errorf("release: %v", err)
		}
	}},
}
