package pathlocktest

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/mongolock/mongolock/pathlock"
)

var eventClaims = []claim{
	{"EachWatcherSeesEachEventOnceInOrder", func(e *env) {
		ctx, cancel := context.WithCancel(e.ctx())
		defer cancel()
		watchers := []iter.Seq2[pathlock.Event, error]{e.watch(ctx, e.tree), e.watch(ctx, e.another())}
		one := e.lock(ask("/a"))
		two, err := e.another().Lock(e.ctx(), ask("/b"))
		if err != nil {
			e.Fatal(err)
		}
		three := e.lock(brief("/c"))
		if err := e.another().Release(e.ctx(), "/a", one.Token); err != nil {
			e.Fatal(err)
		}
		want := []string{
			"added " + one.Token, "added " + two.Token, "added " + three.Token, "released " + one.Token,
			"expired " + three.Token, "added last",
		}
		go func() {
			time.Sleep(short + 3*slack)
			_, _ = e.tree.Lock(context.WithoutCancel(ctx), ask("/last"))
		}()
		for i, w := range watchers {
			var got []string
			var last pathlock.Event
			for event, err := range w {
				if err != nil {
					e.Fatal(err)
				}
				if event.At.Before(last.At) || event.Seq <= last.Seq {
					e.Errorf("watcher %d: after %v, %d came %v, %d", i, last.At, last.Seq, event.At, event.Seq)
				}
				last = event
				if event.Lock.Path == "/last" {
					got = append(got, "added last")
					break
				}
				got = append(got, string(event.Kind)+" "+event.Lock.Token)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				e.Errorf("watcher %d saw\n%v\nnot\n%v", i, got, want)
			}
		}
	}},
	{"ABurstOfEventsLosesNone", func(e *env) {
		ctx, cancel := context.WithCancel(e.ctx())
		defer cancel()
		events := e.watch(ctx, e.another())
		const many = pathlock.LogLength / 4
		var want []string
		for i := range many {
			l := e.lock(ask(fmt.Sprint("/", i)))
			if err := e.tree.Release(e.ctx(), l.Path, l.Token); err != nil {
				e.Fatal(err)
			}
			want = append(want, "added "+l.Token, "released "+l.Token)
		}
		var got []string
		for event, err := range events {
			if err != nil {
				e.Fatal(err)
			}
			if got = append(got, string(event.Kind)+" "+event.Lock.Token); len(got) == len(want) {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			e.Errorf("saw\n%v\nnot\n%v", got, want)
		}
	}},
}

func (e *env) watch(ctx context.Context, tree *pathlock.Tree) iter.Seq2[pathlock.Event, error] {
	e.Helper()
	events, err := tree.Watch(ctx)
	if err != nil {
		e.Fatal(err)
	}
	return events
}
