package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

// A watchCmd is `mongolock watch`.
type watchCmd struct {
	Prefix string         `arg:"" optional:"" help:"Only keys that begin with it."`
	Every  *time.Duration `help:"Look at all keys this often (default: every 250ms, and every 900ms while nothing changes)." placeholder:"250ms"`
	Lines  bool           `help:"Print one line a change on a terminal, too."`

	ahead time.Duration // of the server's clock before this host's, as the last key has shown
}

// Help says what is seen.
func (*watchCmd) Help() string {
	return `Example:

   mongolock watch billing.

Watch is for people who want to see what happens now; it is not a log. On a terminal it is a table
of all keys, elsewhere one line a change: granted, freed, ran out, broken, or waits (a process has
joined the line of the key).

It hears the wake-ups that waiters get, so it sees each change of a key that others wait for.
Nothing announces other changes. For those it reads all keys now and then: a key that nobody waits
for, and that is held for less than the time between two reads, is missed. On standard error it says
when it begins to listen, and when it cannot. Ctrl-C ends it.`
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

// tone returns the colour of a kind of change.
func (c change) tone() tone {
	switch c.Kind {
	case "granted":
		return green
	case "ran out", "broken":
		return red
	case "waits":
		return yellow
	}
	return plain
}

// A snapshot has all keys at one look.
type snapshot map[string]mongolock.Status

// look reads the keys.
func (c *watchCmd) look(ctx context.Context, client *mongolock.Client) (snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	all := snapshot{}
	for s, err := range client.List(ctx, c.Prefix) {
		if err != nil {
			return nil, err
		}
		all[s.Key] = s
		c.ahead = time.Until(s.Now)
	}
	return all, nil
}

// now returns the server's time, for a key that has vanished and so shows none.
func (c *watchCmd) now() time.Time { return time.Now().Add(c.ahead) }

// since returns the changes from before to now, by key.
func (now snapshot) since(before snapshot, at time.Time) []change {
	var all []change
	keys := maps.Clone(before)
	if keys == nil {
		keys = snapshot{}
	}
	maps.Copy(keys, now)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		all = append(all, changesOf(key, before[key], now[key], at)...)
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

func changesOf(key string, before, now mongolock.Status, at time.Time) []change {
	if !now.Now.IsZero() {
		at = now.Now
	}
	was, is := live(before), live(now)
	var all []change
	add := func(kind string, h mongolock.Holder, text string) {
		all = append(all, change{at.UTC(), kind, key, h.Owner, h.Note, text})
	}
	for _, h := range now.Holders {
		if _, ok := was[h.ID]; ok && !now.Live(h) && !h.Released {
			add("ran out", h, "")
			delete(was, h.ID)
		}
	}
	for _, h := range before.Holders {
		_, was := was[h.ID]
		if _, is := is[h.ID]; was && !is {
			add("freed", h, "after "+span(at.Sub(h.Since)))
		}
	}
	for _, h := range now.Holders {
		if !now.Live(h) {
			continue
		}
		old, known := was[h.ID]
		if !known {
			add("granted", h, "")
		}
		if h.Broken != "" && old.Broken == "" {
			add("broken", h, h.Broken)
		}
	}
	return append(all, newWaiters(before, now, at)...)
}

// newWaiters returns who has joined the line.
func newWaiters(before, now mongolock.Status, at time.Time) (all []change) {
	known := map[store.Place]bool{}
	for _, w := range before.Line {
		known[w.Place] = true
	}
	ahead := 0
	for _, w := range now.Line {
		if now.Stale(w) {
			continue
		}
		if !known[w.Place] {
			mode, limit := w.Place.Mode()
			text := wanted(mode, limit, w.Place.Weight())
			if ahead > 0 {
				text += fmt.Sprintf(", %d ahead", ahead)
			}
			all = append(all, change{At: at.UTC(), Kind: "waits", Key: now.Key, Owner: w.Owner, Text: text})
		}
		ahead++
	}
	return all
}

func (c *watchCmd) check() error {
	if c.Every != nil && *c.Every < 10*time.Millisecond {
		return exitf(exitUsage, "--every=%v: must be at least 10ms", *c.Every)
	}
	return nil
}

// Run shows keys until it is interrupted.
func (c *watchCmd) Run(a *app) error {
	a.watching = true
	locks, client, err := a.locks()
	if err != nil {
		return err
	}
	out := newLookout(a.ctx, c.Prefix, c.Every, locks.Database().Collection(locks.Name()+".wake"), client.Feed())
	defer out.feed.Close()
	p := a.printer(keyHeading...)
	if p.tty && !c.Lines {
		return c.screen(a, client, p, out)
	}
	return c.lines(a, client, p, out)
}

// lines writes each change. A failed look is reported, and repeated.
func (c *watchCmd) lines(a *app, client *mongolock.Client, p *printer, out *lookout) error {
	p.tty = false // a line is written when it happens, not when the table is complete
	before, err := c.look(a.ctx, client)
	if err != nil {
		return err
	}
	var fails failures
	changes := before.since(nil, time.Now())
	for {
		for _, ch := range changes {
			if err := p.row(ch, ch.cells("2006-01-02T15:04:05.000Z")...); err != nil {
				return err
			}
		}
		out.listen(a.ctx)
		if text, news := out.state(); news {
			a.say("%s", text)
		}
		if !out.wait(a.ctx, len(changes) > 0) {
			return a.ctx.Err()
		}
		now, err := c.look(a.ctx, client)
		changes = nil
		if !fails.tell(a, err) {
			changes, before = now.since(before, c.now()), now
		}
	}
}

func (c change) cells(layout string) []cell {
	return []cell{{text: c.At.Format(layout)}, {c.Kind, c.tone()}, {text: c.Key}, {text: c.Owner}, {text: c.Text}, {text: c.Note}}
}

// The terminal's alternate screen, on which the table is drawn; the old contents come back
// afterwards.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// screen draws a table of all keys at each look.
func (c *watchCmd) screen(a *app, client *mongolock.Client, p *printer, out *lookout) error {
	fmt.Fprint(a.stdout, enterScreen)
	defer fmt.Fprint(a.stdout, leaveScreen)
	var drawing sync.Mutex // held while the screen is drawn, or given back
	defer onStop(func() {
		drawing.Lock()
		fmt.Fprint(a.stdout, leaveScreen)
	}, func() {
		fmt.Fprint(a.stdout, enterScreen)
		drawing.Unlock()
		out.wake()
	})()
	var last []change
	var before snapshot
	for {
		now, err := c.look(a.ctx, client)
		out.listen(a.ctx)
		status, _ := out.state()
		status, _, _ = strings.Cut(status, ":")
		known := len(last)
		switch {
		case a.ctx.Err() != nil:
			return a.ctx.Err()
		case err != nil:
			status, now = "cannot look, trying again: "+sentence(err), before
		case before != nil:
			last = append(last, now.since(before, c.now())...)
		}
		changed := len(last) > known
		last = last[max(0, len(last)-5):]
		before = now
		drawing.Lock()
		err = c.draw(a, p, now, last, status)
		drawing.Unlock()
		if err != nil {
			return err
		}
		if !out.wait(a.ctx, changed) {
			return a.ctx.Err()
		}
	}
}

func (c *watchCmd) draw(a *app, p *printer, now snapshot, last []change, status string) error {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		width, height = 80, 24
	}
	p.width = width
	held := 0
	for _, key := range slices.Sorted(maps.Keys(now)) {
		v := viewOf(now[key])
		if !v.Free {
			held++
		}
		if !v.Free || v.awaited() > 0 {
			for _, row := range v.rows(!v.Free) {
				p.rows = append(p.rows, shownRow(row))
			}
		}
	}
	line := func(format string, args ...any) string { return fit(clean(fmt.Sprintf(format, args...)), width) } // a longer one would scroll the screen
	lines := append([]string{line("%s · %d held · %s", strings.TrimSpace("mongolock watch "+c.Prefix), held, status), ""}, p.table()...)
	p.rows = nil
	if room := height - len(last) - 2; len(lines) > room && room > 0 {
		lines = append(lines[:room-1], fmt.Sprintf("… %d more", len(lines)-room+1))
	}
	if len(last) > 0 {
		lines = append(lines, "")
		for _, ch := range last {
			lines = append(lines, line("%s  %-8s %s  %s %s", ch.At.Format("15:04:05"), ch.Kind, ch.Key, ch.Owner, ch.Text))
		}
	}
	_, err = fmt.Fprint(a.stdout, home+strings.Join(lines, clearLine+"\r\n")+clearLine+clearBelow)
	return err
}
