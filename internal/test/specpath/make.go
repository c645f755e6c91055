package specpath

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/mongolock/mongolock/store"
)

// make makes a call, and returns the answer as the specification writes it.
func (w *walker) make(c *call) ([]term, error) {
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	s := w.subject.Store()
	slot := func(n int) int { return c.args[n].(int) - 1 }
	switch c.name {
	case "acquire":
		claim := w.claim(slot(0), c.args[1].(string))
		w.wait(&claim, c.args[2].(int), c.args[3].(int))
		g, err := s.Acquire(ctx, claim)
		return w.granted(claim, g, err)
	case "transfer":
		from := w.exclusively(slot(0))
		claim := w.claim(slot(1), "exclusive")
		g, err := s.Transfer(ctx, from, claim)
		return w.granted(claim, g, err)
	case "renew":
		answers := s.Renew(ctx, []store.Renewal{{Ref: w.ref(slot(0)), TTL: w.ttl}})
		if len(answers) != 1 {
			return nil, fmt.Errorf("a batch of one got %d answers", len(answers))
		}
		if a := answers[0]; a.Err == nil && (a.Left <= 0 || a.Left > w.ttl) {
			return nil, fmt.Errorf("renewed for %v", a.Left)
		}
		return verdict("renewed", answers[0].Err)
	case "release":
		return w.release(ctx, slot(0), 0)
	case "keep":
		return w.release(ctx, slot(0), w.keep(slot(0), c.args[1].(int)))
	case "break":
		return verdict("done", s.Break(ctx, w.ref(slot(0)), broken, c.args[1].(bool)))
	case "undo":
		_, err := s.Undo(ctx, w.ref(slot(0)), nil)
		return verdict("done", err)
	case "undo transfer":
		to, from := w.exclusively(slot(0)), w.exclusively(slot(1))
		if !w.at.Holders[slot(0)].There {
			to.ID = rand.Text() // it was never applied
		}
		_, err := s.Undo(ctx, to, &from)
		return verdict("done", err)
	case "leave":
		place := w.places[c.args[0].(int)]
		if place == "" {
			place = store.NewPlace(store.Exclusive, 1, "")
		}
		status, err := s.Leave(ctx, w.key, place, c.args[1].(bool))
		if w.told = &status; len(status.Line) == 0 {
			status.Set = w.at.Set // nobody is to be told: a store need not read it
		}
		return verdict("done", err)
	case "limit":
		setter, is := store.As[store.LimitSetter](s)
		if !is {
			return nil, errors.ErrUnsupported
		}
		status, err := setter.SetLimit(ctx, w.key, c.args[0].(int))
		w.told = &status
		return verdict("done", err)
	case "sweep":
		return nil, w.subject.Sweep(ctx, w.key)
	case "tick":
		err := w.subject.Tick(ctx, w.key)
		w.since = time.Now()
		return nil, err
	}
	return nil, errors.New("a call that no store has")
}

// ref is the acquisition that an id stands for. One that was never granted is made up.
func (w *walker) ref(i int) store.Ref {
	if w.ids[i].ID == "" {
		w.ids[i] = store.Ref{Key: w.key, ID: rand.Text(), Mode: store.Exclusive}
	}
	return w.ids[i]
}

func (w *walker) exclusively(i int) store.Ref {
	r := w.ref(i)
	r.Mode = store.Exclusive
	return r
}

// claim is a claim under an ID of its own.
func (w *walker) claim(i int, in string) store.Claim {
	m, limit := mode(in)
	w.ids[i] = store.Ref{Key: w.key, ID: rand.Text(), Mode: m}
	return store.Claim{Ref: w.ids[i], Limit: limit, Weight: weight(in), TTL: w.ttl, Owner: owner}
}

// wait gives a claim its place in line, and the place that it passes; 0: none. The hints change
// nothing.
func (w *walker) wait(c *store.Claim, place, pass int) {
	if place > 0 {
		if !w.at.stands(place) {
			w.places[place] = store.NewPlace(c.Mode, c.Limit, "specpath").Weighing(c.Weight)
		}
		c.Place, c.Pass = w.places[place], w.places[pass]
		c.Offered = w.steps%3 == 0
		c.InLine = w.steps%5 < 2 && w.at.stands(place)
	}
	c.Held = w.steps%2 == 0 && !w.status.Free()
}

// granted checks what every grant owes.
func (w *walker) granted(c store.Claim, g store.Grant, err error) ([]term, error) {
	var held *store.HeldError
	var mismatch *store.MismatchError
	switch {
	case errors.As(err, &held):
		if held.Key != w.key || held.Place != c.Place {
			return nil, fmt.Errorf("held, says an answer to %q at place %q of %q", c.Place, held.Place, held.Key)
		}
		w.told = &held.Status
		return []term{"held"}, nil
	case errors.As(err, &mismatch):
		if live, limit := mode(w.at.Mode); mismatch.Live != live || mismatch.Limit != limit {
			return nil, fmt.Errorf("a mismatch with %s and limit %d", mismatch.Live, mismatch.Limit)
		}
		return []term{"mismatch"}, nil
	case err != nil:
		return verdict("", err)
	case g.Left <= 0 || g.Left > w.ttl:
		return nil, fmt.Errorf("granted for %v", g.Left)
	case g.Token <= w.writers || c.Mode == store.Exclusive && g.Token <= w.token:
		return nil, fmt.Errorf("token %d after %d, and %d of a writer", g.Token, w.token, w.writers)
	}
	w.token = max(w.token, g.Token)
	if c.Mode == store.Exclusive {
		w.writers = max(w.writers, g.Token)
	}
	return []term{"granted", w.numbers(g.Line)}, nil
}

// numbers are the places that an answer shows, as the specification counts them.
func (w *walker) numbers(line []store.Place) []term {
	all := []term{}
	for _, p := range line {
		number := 0
		for n, known := range w.places {
			if known == p {
				number = n
			}
		}
		all = append(all, number)
	}
	return all
}

// release gives a holder back, every other time with the hint that others wait.
func (w *walker) release(ctx context.Context, i int, keep time.Duration) ([]term, error) {
	answers := w.subject.Store().Release(ctx, []store.Ending{{Ref: w.ref(i), Keep: keep, Line: w.steps%2 == 0}})
	if len(answers) != 1 {
		return nil, fmt.Errorf("a batch of one got %d answers", len(answers))
	}
	if a := answers[0]; a.Err == nil {
		return []term{"released", w.numbers(a.Line), a.Left}, nil
	}
	return verdict("", answers[0].Err)
}

// keep is the MinHold, which counts from the grant, of a release that keeps the key for n
// ticks more.
func (w *walker) keep(i, n int) time.Duration {
	age := time.Duration(0)
	for _, h := range w.status.Holders {
		if h.ID == w.ids[i].ID {
			age = w.status.Now.Sub(h.Since)
		}
	}
	if n == 0 {
		return max(0, age/2)
	}
	return max(age, 0) + time.Duration(n)*Tick
}

// verdict is an answer as the specification writes it. A fault is not a verdict.
func verdict(done string, err error) ([]term, error) {
	var b *store.BrokenError
	switch {
	case err == nil:
		return []term{done}, nil
	case errors.As(err, &b):
		if b.Reason != broken {
			return nil, fmt.Errorf("broken because %q", b.Reason)
		}
		return []term{"broken"}, nil
	case errors.Is(err, store.ErrGone):
		return []term{"gone"}, nil
	}
	return nil, err
}
