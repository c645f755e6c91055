package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/store"
)

// life has two clients go through everything that a lock does, and measures it.
func (x *exam) life(ctx context.Context) []finding {
	var clients [2]*mongolock.Client
	for i := range clients {
		c, err := mongolock.New(x.coll, mongolock.WithoutIndex(), mongolock.WithLogger(x.a.logger()), mongolock.WithOwner("mongolock doctor"))
		if err != nil {
			return fail("", "%s", reason(err))
		}
		defer c.Close() //nolint:errcheck // leftBehind finds what it left
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
		{"fence off the older token", func(*time.Time) error { return x.fence(ctx, first.Token(), second.Token()) }},
		{"release", func(*time.Time) error { return second.Release() }},
	} {
		begun := time.Now()
		if err := step.do(&begun); err != nil {
			text := step.name + ": " + reason(err)
			if len(times) > 0 {
				text += " (before that: " + strings.Join(times, ", ") + ")"
			}
			return fail(whatToDo(err), "%s", text)
		}
		times = append(times, step.name+" "+span(time.Since(begun)))
	}
	return fine("%s", strings.Join(times, ", "))
}

// fence writes with the newer token and then with the older one, which must be refused.
func (x *exam) fence(ctx context.Context, older, newer int64) error {
	id := bson.D{{Key: "_id", Value: x.scratch + ":fenced"}}
	if _, err := x.coll.InsertOne(ctx, expired(x.scratch+":fenced")); err != nil {
		return err
	}
	touch := bson.D{{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}}}
	if _, err := fence.UpdateOne(ctx, x.coll, newer, id, touch); err != nil {
		return err
	}
	switch _, err := fence.UpdateOne(ctx, x.coll, older, id, touch); {
	case err == nil:
		return errors.New("the fencing token does not refuse the older holder: the write went through")
	case !errors.Is(err, fence.ErrFenced):
		return err
	}
	_, err := x.coll.DeleteOne(ctx, id)
	return err
}

// A sight is something to name in a line about many keys.
type sight struct {
	text string
	span time.Duration
}

// sights keeps the longest of those that it is given, for there may be a million, and counts all.
type sights struct {
	first []sight
	all   int
}

func (s *sights) add(span time.Duration, format string, args ...any) {
	const shown = 3
	s.all++
	s.first = append(s.first, sight{fmt.Sprintf(format, args...), span})
	slices.SortStableFunc(s.first, func(a, b sight) int { return cmp.Compare(b.span, a.span) })
	s.first = s.first[:min(shown, len(s.first))]
}

// text names them, and says how many more there are.
func (s *sights) text(more string) string {
	var texts []string
	for _, one := range s.first {
		texts = append(texts, one.text)
	}
	text := strings.Join(texts, ", ")
	if n := s.all - len(texts); n > 0 {
		text += fmt.Sprintf(", and %d more %s", n, more)
	}
	return text
}

// keys looks at all keys, but for those that the checks wrote, and names the holders that have held longest, those that
// ran out because their processes died, or lost the database, and the keys for which processes wait.
func (x *exam) keys(ctx context.Context) []finding {
	client, err := mongolock.New(x.real, x.a.clientOptions()...)
	if err != nil {
		return fail("", "%s", reason(err))
	}
	defer client.Close() //nolint:errcheck // it holds nothing
	var held, dead, lines, full sights
	stale := 0
	for s, err := range client.List(ctx, "") {
		switch {
		case err != nil:
			return []finding{{"held longest", failure, "the keys cannot be listed: " + reason(err), ""}}
		case strings.HasPrefix(s.Key, "mongolock-doctor:"):
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
	all := slices.Concat(x.held(held), x.dead(dead), waiting(lines, full, stale))
	for i, check := range []string{"held longest", "dead holders", "waiting"} {
		all[i].Check = check
	}
	return all
}

func (x *exam) held(held sights) []finding {
	switch text := held.text("holders"); {
	case held.all == 0:
		return fine("no key is held")
	case held.first[0].span > x.c.Long:
		return warn("is that holder meant to hold it so long? mongolock show, mongolock break", "%s", text)
	default:
		return fine("%s", text)
	}
}

func (x *exam) dead(dead sights) []finding {
	if dead.all == 0 {
		return fine("none has run out and is left")
	}
	oldest := dead.first[0].span
	text := fmt.Sprintf("%d that ran out and were left, the oldest %s ago: %s", dead.all, span(oldest), dead.text("of others"))
	const swept = 2 * time.Hour
	if oldest > swept {
		return warn("is the TTL index there, and does the server's TTL monitor run?", "%s. They block nobody, but nothing removes them", text)
	}
	return fine("%s. They block nobody; the TTL index removes them within some two hours", text)
}

func waiting(lines, full sights, stale int) []finding {
	text := cmp.Or(lines.text("keys"), "no process is in line for a key")
	if stale > 0 {
		text += fmt.Sprintf(" (%d stale places of processes that died; whoever comes next passes them)", stale)
	}
	if full.all > 0 {
		return warn("further processes have no place and try now and then: let fewer processes wait for one key", "%s. The line of %s is full", text, full.text("keys"))
	}
	return fine("%s", text)
}
