package pathlock_test

import (
	"context"
	"fmt"
	"iter"

	"github.com/mongolock/mongolock/pathlock"
)

var eventClaims = []claim{
	{"EachWatcherIsToldOfEachEventOnceAndInOrder", func(e *env) {
		ctx, cancel := context.WithCancel(e.ctx())
		defer cancel()
		watchers := []<-chan pathlock.Event{e.follow(ctx, e.tree), e.follow(ctx, e.other)}
		one := e.lock(ask("/a"))
		two, err := e.other.Lock(e.ctx(), ask("/b"))
		if err != nil {
			e.Fatal(err)
		}
		if err := e.other.Release(e.ctx(), one.Token); err != nil {
			e.Fatal(err)
		}
		three := e.lock(brief("/c")) // the watchers write when it runs out
		got, newest := make([][]string, len(watchers)), make([]pathlock.Event, len(watchers))
		read := func(until string) {
			for i, events := range watchers {
				for event := range events {
					if event.At.Before(newest[i].At) || event.Seq <= newest[i].Seq {
						e.Errorf("watcher %d: after %v, %d came %v, %d", i, newest[i].At, newest[i].Seq, event.At, event.Seq)
					}
					newest[i] = event
					got[i] = append(got[i], string(event.Kind)+" "+event.Lock.Token)
					if string(event.Kind)+" "+event.Lock.Path == until {
						break
					}
				}
			}
		}
		read("expired /c")
		last := e.lock(ask("/last"))
		read("added /last")
		want := []string{
			"added " + one.Token, "added " + two.Token, "released " + one.Token, "added " + three.Token,
			"expired " + three.Token, "added " + last.Token,
		}
		for i := range watchers {
			if fmt.Sprint(got[i]) != fmt.Sprint(want) {
				e.Errorf("watcher %d saw\n%v\nnot\n%v", i, got[i], want)
			}
		}
	}},
	{"ABurstOfEventsLosesNone", func(e *env) {
		ctx, cancel := context.WithCancel(e.ctx())
		defer cancel()
		events := e.watch(ctx, e.other)
		const many = pathlock.LogLength / 4
		var want []string
		for i := range many {
			l := e.lock(ask(fmt.Sprint("/", i)))
			if err := e.tree.Release(e.ctx(), l.Token); err != nil {
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

// follow sends a tree's events to a channel, until the context ends.
func (e *env) follow(ctx context.Context, tree *pathlock.Tree) <-chan pathlock.Event {
	e.Helper()
	told := make(chan pathlock.Event, pathlock.LogLength)
	events := e.watch(ctx, tree)
	go func() {
		defer close(told)
		for event, err := range events {
			if err != nil {
				e.Error(err)
				return
			}
			select {
			case told <- event:
			case <-ctx.Done():
				return
			}
		}
	}()
	return told
}
