package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/store"
)

// A watchCmd is `mongolock watch`.
type watchCmd struct {
	Prefix string        `arg:"" optional:"" help:"Only keys that begin with it."`
	Every  time.Duration `help:"Look at all keys this often (default: 250ms)." default:"250ms" placeholder:"250ms"`
}

// Help says what is seen.
func (*watchCmd) Help() string {
	return `Example:

   mongolock watch billing.

It prints one line a change: granted, freed, ran out, broken, or waits (a process has joined the line
of the key). It reads all keys now and then, so it misses what is held for less than the time
between two looks: watch is for people who want to see what happens now, and not a log. Ctrl-C ends
it.`
}

func (c *watchCmd) check() error {
	if c.Every < 10*time.Millisecond {
		return exitf(exitUsage, "--every=%v: must be at least 10ms", c.Every)
	}
	return nil
}

// Run prints each change until it is interrupted. Of failed looks in a row it reports the first.
func (c *watchCmd) Run(a *app) error {
	a.watching = true
	_, client, err := a.locks()
	if err != nil {
		return err
	}
	before, err := c.look(a.ctx, client)
	if err != nil {
		return err
	}
	p := a.printer()
	failed := false
	for changes := before.since(snapshot{}); ; {
		for _, ch := range changes {
			if err := p.row(ch, ch.At.Format("2006-01-02T15:04:05.000Z"), ch.Kind, ch.Key, ch.Owner, ch.Text, ch.Note); err != nil {
				return err
			}
		}
		if err := p.flush(); err != nil || !backoff.Sleep(a.ctx, c.Every) {
			return err
		}
		now, err := c.look(a.ctx, client)
		if err != nil && !failed && a.ctx.Err() == nil {
			a.say("cannot look, trying again: %s", sentence(err))
		}
		if failed = err != nil; failed {
			changes = nil
			continue
		}
		changes, before = now.since(before), now
	}
}

// A snapshot has all keys at one look.
type snapshot struct {
	keys  map[string]mongolock.Status
	ahead time.Duration // of the server's clock before this host's, as the last key has shown
}

// look reads the keys.
func (c *watchCmd) look(ctx context.Context, client *mongolock.Client) (snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	all := snapshot{keys: map[string]mongolock.Status{}}
	for s, err := range client.List(ctx, c.Prefix) {
		if err != nil {
			return all, err
		}
		all.keys[s.Key], all.ahead = s, time.Until(s.Now)
	}
	return all, nil
}

// since returns the changes from before to now, by key.
func (now snapshot) since(before snapshot) (all []change) {
	var keys []string
	for _, s := range []snapshot{before, now} {
		for key := range s.keys {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		all = append(all, changesOf(key, before.keys[key], now.keys[key], time.Now().Add(before.ahead))...)
	}
	return all
}

// A change is the difference of a key between two looks.
type change struct {
	At    time.Time `json:"at"` // the server's time at the look that showed it
	Kind  string    `json:"kind"`
	Key   string    `json:"key"`
	Owner string    `json:"owner,omitempty"`
	Note  string    `json:"note,omitempty"`
	Text  string    `json:"text,omitempty"`
}

// changesOf returns those of one key. A key that has vanished shows no time: then it is at.
func changesOf(key string, before, now mongolock.Status, at time.Time) (all []change) {
	if !now.Now.IsZero() {
		at = now.Now
	}
	add := func(kind, owner, note, text string) {
		all = append(all, change{at.UTC(), kind, key, owner, note, text})
	}
	was, is := live(before), live(now)
	for _, h := range now.Holders {
		if _, ok := was[h.ID]; ok && !now.Live(h) && !h.Released {
			add("ran out", h.Owner, h.Note, "")
			delete(was, h.ID)
		}
	}
	for _, h := range before.Holders {
		_, was := was[h.ID]
		if _, is := is[h.ID]; was && !is {
			add("freed", h.Owner, h.Note, "after "+span(at.Sub(h.Since)))
		}
	}
	for _, h := range now.Holders {
		if !now.Live(h) {
			continue
		}
		old, known := was[h.ID]
		if !known {
			add("granted", h.Owner, h.Note, "")
		}
		if h.Broken != "" && old.Broken == "" {
			add("broken", h.Owner, h.Note, h.Broken)
		}
	}
	ahead := 0
	for _, w := range now.Line {
		if now.Stale(w) {
			continue
		}
		if !slices.ContainsFunc(before.Line, func(b store.Waiter) bool { return b.Place == w.Place }) {
			mode, limit := w.Place.Mode()
			text := wanted(mode, limit, w.Place.Weight())
			if ahead > 0 {
				text += fmt.Sprintf(", %d ahead", ahead)
			}
			add("waits", w.Owner, "", text)
		}
		ahead++
	}
	return all
}

// live returns the holders that count, by their IDs.
func live(s mongolock.Status) map[string]mongolock.Holder {
	all := map[string]mongolock.Holder{}
	for _, h := range s.Holders {
		if s.Live(h) {
			all[h.ID] = h
		}
	}
	return all
}
