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
	"github.com/mongolock/mongolock/store"
)

// life has two clients go through everything that a lock does, and measures it.
func (x *exam) life(ctx context.Context) []finding {
	opts := []mongolock.ClientOption{mongolock.WithoutIndex(), mongolock.WithLogger(x.a.logger()), mongolock.WithOwner("mongolock doctor")}
	one, err := mongolock.New(x.coll, opts...)
	if err != nil {
		return fail("", "%s", reason(err))
	}
	defer one.Close() //nolint:errcheck // leftBehind finds what it left
	two, err := mongolock.New(x.coll, opts...)
	if err != nil {
		return fail("", "%s", reason(err))
	}
	defer two.Close() //nolint:errcheck // leftBehind finds what it left

	l := &lifeOf{key: x.scratch + ":life", one: one, two: two}
	for _, step := range []struct {
		name string
		do   func(context.Context) (time.Duration, error)
	}{
		{"acquire", l.acquire}, {"renew", l.renew}, {"refuse a rival", l.refuse}, {"hand off", l.handOff},
	} {
		took, err := step.do(ctx)
		if err != nil {
			return fail(whatToDo(err), "%s: %s%s", step.name, reason(err), l.soFar())
		}
		l.times = append(l.times, fmt.Sprintf("%s %s", step.name, span(took)))
	}
	if err := l.fence(ctx, x); err != nil {
		return fail("", "the fencing token does not refuse the older holder: %s", reason(err))
	}
	l.times = append(l.times, "fenced off the older token")
	begun := time.Now()
	if err := l.second.Release(); err != nil {
		return fail(whatToDo(err), "release: %s%s", reason(err), l.soFar())
	}
	l.times = append(l.times, "release "+span(time.Since(begun)))
	return fine("%s", strings.Join(l.times, ", "))
}

// A lifeOf is one key on its way from one holder to the next.
type lifeOf struct {
	key           string
	one, two      *mongolock.Client
	first, second *mongolock.Lease
	times         []string
}

func (l *lifeOf) soFar() string {
	if len(l.times) == 0 {
		return ""
	}
	return " (before that: " + strings.Join(l.times, ", ") + ")"
}

func (l *lifeOf) acquire(ctx context.Context) (took time.Duration, err error) {
	begun := time.Now()
	l.first, err = l.one.TryAcquire(ctx, l.key, mongolock.TTL(10*time.Second))
	return time.Since(begun), err
}

func (l *lifeOf) renew(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	err := l.first.Renew(ctx)
	return time.Since(begun), err
}

func (l *lifeOf) refuse(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	lease, err := l.two.TryAcquire(ctx, l.key)
	took := time.Since(begun)
	switch {
	case err == nil:
		_ = lease.Release() // that there are two is bad enough
		return 0, errors.New("a rival was granted the key while it was held")
	case errors.Is(err, mongolock.ErrHeld):
		return took, nil
	}
	return took, err
}

func (l *lifeOf) handOff(ctx context.Context) (time.Duration, error) {
	type answer struct {
		lease *mongolock.Lease
		at    time.Time
		err   error
	}
	answers := make(chan answer, 1)
	go func() { // ends with ctx
		lease, err := l.two.Acquire(ctx, l.key)
		answers <- answer{lease, time.Now(), err}
	}()
	if !pause(ctx, 500*time.Millisecond) { // so that it waits, and listens
		return 0, ctx.Err()
	}
	begun := time.Now()
	if err := l.first.Release(); err != nil {
		return 0, err
	}
	a := <-answers
	if a.err != nil {
		return 0, a.err
	}
	if l.second = a.lease; l.second.Token() <= l.first.Token() {
		return 0, fmt.Errorf("the token did not rise: %d, then %d", l.first.Token(), l.second.Token())
	}
	return a.at.Sub(begun), nil
}

// fence writes with the newer token and then with the older one, which must be refused.
func (l *lifeOf) fence(ctx context.Context, x *exam) error {
	id := bson.D{{Key: "_id", Value: x.scratch + ":fenced"}}
	if _, err := x.coll.InsertOne(ctx, expired(x.scratch+":fenced")); err != nil {
		return err
	}
	touch := bson.D{{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}}}
	if _, err := fence.UpdateOne(ctx, x.coll, l.second.Token(), id, touch); err != nil {
		return err
	}
	_, err := fence.UpdateOne(ctx, x.coll, l.first.Token(), id, touch)
	switch {
	case err == nil:
		return errors.New("the write went through")
	case !errors.Is(err, fence.ErrFenced):
		return err
	}
	_, err = x.coll.DeleteOne(ctx, id)
	return err
}

// each calls f with each key in the collection of the locks, except for those that the checks
// wrote. There may be a million: f keeps only a few.
func (x *exam) each(ctx context.Context, f func(v keyView)) error {
	client, err := mongolock.New(x.real, x.a.clientOptions()...)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it holds nothing
	for s, err := range client.List(ctx, "") {
		if err != nil {
			return err
		}
		if strings.HasPrefix(s.Key, "mongolock-doctor:") {
			continue
		}
		f(viewOf(s))
	}
	return nil
}

// eachHolder calls f with each holder.
func (x *exam) eachHolder(ctx context.Context, f func(v keyView, h holderView)) error {
	return x.each(ctx, func(v keyView) {
		for _, h := range v.Holders {
			f(v, h)
		}
	})
}

// namesShown is how many keys a line names.
const namesShown = 3

// longest names the keys that have been held longest.
func (x *exam) longest(ctx context.Context) []finding {
	type held struct {
		key, owner string
		span       time.Duration
	}
	var first []held
	live := 0
	err := x.eachHolder(ctx, func(v keyView, h holderView) {
		if !h.Live || h.Released {
			return
		}
		live++
		first = append(first, held{v.Key, h.Owner, v.Now.Sub(h.Since)})
		slices.SortStableFunc(first, func(a, b held) int { return cmp.Compare(b.span, a.span) })
		first = first[:min(namesShown, len(first))]
	})
	switch {
	case err != nil:
		return fail("", "the keys cannot be listed: %s", reason(err))
	case live == 0:
		return fine("no key is held")
	}
	var texts []string
	for _, h := range first {
		texts = append(texts, fmt.Sprintf("%s for %s by %s", h.key, span(h.span), h.owner))
	}
	text := strings.Join(texts, ", ")
	if more := live - len(texts); more > 0 {
		text += fmt.Sprintf(", and %d more holders", more)
	}
	if first[0].span > x.c.Long {
		return warn("is that holder meant to hold it so long? mongolock show, mongolock break", "%s", text)
	}
	return fine("%s", text)
}

// dead names holders that ran out because their processes died, or lost the database.
func (x *exam) dead(ctx context.Context) []finding {
	var names []string
	var oldest time.Duration
	left := 0
	err := x.eachHolder(ctx, func(v keyView, h holderView) {
		if h.Live || h.Released { // its process released it; it was kept for a while, and nobody has asked since
			return
		}
		if left++; left <= namesShown {
			names = append(names, fmt.Sprintf("%s of %s", v.Key, h.Owner))
		}
		oldest = max(oldest, v.Now.Sub(h.ExpireAt))
	})
	switch {
	case err != nil:
		return nil // the check longest has reported it
	case left == 0:
		return fine("none has run out and is left")
	}
	text := fmt.Sprintf("%d that ran out and were left, the oldest %s ago: %s", left, span(oldest), strings.Join(names, ", "))
	const swept = 2 * time.Hour
	if oldest > swept {
		return warn("is the TTL index there, and does the server's TTL monitor run?", "%s. They block nobody, but nothing removes them", text)
	}
	return fine("%s. They block nobody; the TTL index removes them within some two hours", text)
}

// waiting names the keys for which processes have waited longest.
func (x *exam) waiting(ctx context.Context) []finding {
	type line struct {
		key, owner string
		waits      int
		span       time.Duration
	}
	var first []line
	var full []string
	keys, stale := 0, 0
	err := x.each(ctx, func(v keyView) {
		n := v.awaited()
		stale += len(v.Line) - n
		if len(v.Line) >= store.LineMost {
			full = append(full, v.Key)
		}
		if n == 0 {
			return
		}
		keys++
		next := v.Line[slices.IndexFunc(v.Line, func(w waiterView) bool { return !w.Stale })]
		first = append(first, line{v.Key, next.Owner, n, v.Now.Sub(next.Since)})
		slices.SortStableFunc(first, func(a, b line) int { return cmp.Compare(b.span, a.span) })
		first = first[:min(namesShown, len(first))]
	})
	if err != nil {
		return nil // the check longest has reported it
	}
	text := "no process is in line for a key"
	var texts []string
	for _, l := range first {
		texts = append(texts, fmt.Sprintf("%d for %s, the first is %s, for %s", l.waits, l.key, l.owner, span(l.span)))
	}
	if keys > 0 {
		text = strings.Join(texts, "; ")
	}
	if more := keys - len(first); more > 0 {
		text += fmt.Sprintf("; and others for %d more keys", more)
	}
	if stale > 0 {
		text += fmt.Sprintf(" (%d stale places of processes that died; whoever comes next passes them)", stale)
	}
	if len(full) > 0 {
		return warn("further processes have no place and try now and then: let fewer processes wait for one key", "%s. The line of %s is full", text, strings.Join(full[:min(namesShown, len(full))], ", "))
	}
	return fine("%s", text)
}
