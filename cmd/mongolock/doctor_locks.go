package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/store"
)

// life has two clients go through everything that a lock does, and measures it.
func (x *exam) life(ctx context.Context) {
	const check = "a lock's life"
	var clients [2]*mongolock.Client
	for i := range clients {
		c, err := mongolock.New(x.coll, mongolock.WithoutIndex(), mongolock.WithLogger(x.a.logger()), mongolock.WithOwner("mongolock doctor"))
		if err != nil {
			x.fail(check, "", "%s", reason(err))
			return
		}
		defer c.Close() //nolint:errcheck // the TTL index removes what it left
		clients[i] = c
	}
	one, two, key := clients[0], clients[1], x.scratch+":life"
	var first, second *mongolock.Lease
	var times []string
	for _, step := range []struct {
		name string
		do   func(begun *time.Time) error
	}{
		{"acquire", func(*time.Time) (err error) {
			first, err = one.TryAcquire(ctx, key, mongolock.TTL(10*time.Second))
			return err
		}},
		{"renew", func(*time.Time) error { return first.Renew(ctx) }},
		{"refuse a rival", func(*time.Time) error {
			lease, err := two.TryAcquire(ctx, key)
			if err == nil {
				_ = lease.Release() // that there are two is bad enough
				return errors.New("a rival was granted the key while it was held")
			}
			if errors.Is(err, mongolock.ErrHeld) {
				return nil
			}
			return err
		}},
		{"hand off", func(begun *time.Time) error {
			granted := make(chan error, 1)
			go func() { // ends with ctx
				var err error
				second, err = two.Acquire(ctx, key)
				granted <- err
			}()
			if !backoff.Sleep(ctx, 500*time.Millisecond) { // so that it waits, and listens
				return ctx.Err()
			}
			*begun = time.Now()
			if err := first.Release(); err != nil {
				return err
			}
			if err := <-granted; err != nil {
				return err
			}
			if second.Token() <= first.Token() {
				return fmt.Errorf("the token did not rise: %d, then %d", first.Token(), second.Token())
			}
			return nil
		}},
		{"release", func(*time.Time) error { return second.Release() }},
	} {
		begun := time.Now()
		if err := step.do(&begun); err != nil {
			x.fail(check, whatToDo(err), "%s: %s (before that: %s)", step.name, reason(err), cmp.Or(strings.Join(times, ", "), "nothing"))
			return
		}
		times = append(times, step.name+" "+span(time.Since(begun)))
	}
	x.fine(check, "%s", strings.Join(times, ", "))
}

// A sight is what a line about many keys names: the one with the longest time.
type sight struct {
	text string
	span time.Duration
	all  int
}

func (s *sight) add(span time.Duration, format string, args ...any) {
	if s.all++; s.all == 1 || span > s.span {
		s.text, s.span = fmt.Sprintf(format, args...), span
	}
}

// keys looks at all keys, but for those that the checks wrote, and names the holder that has held longest, one that
// ran out because its process died, or lost the database, and the key for which a process waits longest.
func (x *exam) keys(ctx context.Context) {
	client, err := x.a.client(x.real)
	if err != nil {
		x.fail("held longest", "", "%s", reason(err))
		return
	}
	var held, dead, lines, full sight
	stale := 0
	for s, err := range client.List(ctx, "") {
		if err != nil {
			x.fail("held longest", "", "the keys cannot be listed: %s", reason(err))
			return
		}
		if strings.HasPrefix(s.Key, "mongolock-doctor:") {
			continue
		}
		v := viewOf(s)
		for _, h := range v.Holders {
			switch {
			case h.Released: // its process released it; it is kept for a while, or nobody has asked since
			case h.Live:
				held.add(v.Now.Sub(h.Since), "%s for %s by %s", v.Key, span(v.Now.Sub(h.Since)), h.Owner)
			default:
				dead.add(v.Now.Sub(h.ExpireAt), "%s of %s", v.Key, h.Owner)
			}
		}
		n := v.awaited()
		stale += len(v.Line) - n
		if len(v.Line) >= store.LineMost {
			full.add(0, "%s", v.Key)
		}
		if n > 0 {
			next := v.Line[slices.IndexFunc(v.Line, func(w waiterView) bool { return !w.Stale })]
			waits := v.Now.Sub(next.Since)
			lines.add(waits, "%d for %s, the first is %s, for %s", n, v.Key, next.Owner, span(waits))
		}
	}
	x.held(held)
	x.dead(dead)
	x.waiting(lines, full, stale)
}

func (x *exam) held(held sight) {
	const check = "held longest"
	switch {
	case held.all == 0:
		x.fine(check, "no key is held")
	case held.span > x.c.Long:
		x.warn(check, "is that holder meant to hold it so long? mongolock show, mongolock break", "%s, of %d holders", held.text, held.all)
	default:
		x.fine(check, "%s, of %d holders", held.text, held.all)
	}
}

func (x *exam) dead(dead sight) {
	const check, swept = "dead holders", 2 * time.Hour
	text := fmt.Sprintf("%d that ran out and were left, the oldest %s ago: %s. They block nobody", dead.all, span(dead.span), dead.text)
	switch {
	case dead.all == 0:
		x.fine(check, "none has run out and is left")
	case dead.span > swept:
		x.warn(check, "is the TTL index there, and does the server's TTL monitor run?", "%s, but nothing removes them", text)
	default:
		x.fine(check, "%s; the TTL index removes them within some two hours", text)
	}
}

func (x *exam) waiting(lines, full sight, stale int) {
	text := "no process is in line for a key"
	if lines.all > 0 {
		text = fmt.Sprintf("%s, of %d keys", lines.text, lines.all)
	}
	if stale > 0 {
		text += fmt.Sprintf(" (%d stale places of processes that died; whoever comes next passes them)", stale)
	}
	if full.all > 0 {
		x.warn("waiting", "further processes have no place and try now and then: let fewer processes wait for one key", "%s. The line of %s is full", text, full.text)
		return
	}
	x.fine("waiting", "%s", text)
}
