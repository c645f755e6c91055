package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

// A lsCmd is `mongolock ls`.
type lsCmd struct {
	Prefix string `arg:"" optional:"" help:"Only keys that begin with it."`
	All    bool   `help:"Also list free keys that are not removed yet."`
}

// A holderView is a holder as it is shown. It has no ID: that gives the same power as the
// lease.
type holderView struct {
	Owner    string    `json:"owner"`
	Note     string    `json:"note,omitempty"`
	Weight   int       `json:"weight,omitempty"` // how many permits it has, if not one
	Since    time.Time `json:"since"`
	ExpireAt time.Time `json:"expireAt"`
	Live     bool      `json:"live"`
	Broken   string    `json:"broken,omitempty"`
	Released bool      `json:"released,omitempty"` // --min-hold keeps the key until ExpireAt

	// A holder that ran out counts as live until the server can be sure, which is by KnownBy at
	// the latest.
	Confirming bool      `json:"confirming,omitempty"`
	KnownBy    time.Time `json:"knownBy,omitzero"`
}

// A waiterView is a process in line as it is shown.
type waiterView struct {
	Owner  string     `json:"owner"`
	Mode   store.Mode `json:"mode"`             // in which it wants the key; empty if a newer version wrote the place
	Limit  int        `json:"limit,omitempty"`  // how many permits may be taken once it has its own
	Weight int        `json:"weight,omitempty"` // how many permits it wants, if not one
	Since  time.Time  `json:"since"`
	Seen   time.Time  `json:"seen"` // when it last said that it still waits

	Offered bool `json:"offered,omitempty"` // it may have the key now
	Stale   bool `json:"stale,omitempty"`   // it was not seen for so long that it is passed
	Polls   bool `json:"polls,omitempty"`   // it hears no wake-ups
}

// A keyView is a key as it is shown.
type keyView struct {
	Key     string       `json:"key"`
	Free    bool         `json:"free"`
	Mode    store.Mode   `json:"mode,omitempty"`
	Taken   int          `json:"taken,omitempty"` // how many permits
	Holders []holderView `json:"holders"`
	Line    []waiterView `json:"line"` // who waits, in their order
	Now     time.Time    `json:"now"`  // the server's clock
}

func viewOf(s mongolock.Status) keyView {
	v := keyView{Key: s.Key, Free: s.Free(), Mode: s.Mode, Now: s.Now.UTC(), Holders: []holderView{}, Line: []waiterView{}}
	if s.Mode == store.Permits {
		v.Taken = s.Taken()
	}
	line := s.Waiting("")
	offered := line[:s.Offered(line)]
	for _, w := range s.Line {
		mode, limit := w.Place.Mode()
		view := waiterView{Owner: w.Owner, Mode: mode, Since: w.Since.UTC(), Seen: w.Seen.UTC(), Stale: s.Stale(w), Polls: w.Place.Address() == ""}
		view.Offered = slices.Contains(offered, w.Place)
		if mode == store.Permits {
			view.Limit, view.Weight = limit, severalOf(w.Place.Weight())
		}
		v.Line = append(v.Line, view)
	}
	for _, h := range s.Holders {
		view := holderView{Owner: h.Owner, Note: h.Note, Weight: severalOf(h.Weight), Since: h.Since.UTC(), ExpireAt: h.ExpireAt.UTC(), Live: s.Live(h), Broken: h.Broken, Released: h.Released}
		if view.Confirming = s.Confirming(h); view.Confirming {
			view.KnownBy = h.KnownBy.UTC()
		}
		v.Holders = append(v.Holders, view)
	}
	return v
}

// severalOf is a weight, or 0 for one.
func severalOf(weight int) int {
	if weight > 1 {
		return weight
	}
	return 0
}

// held says how a key is held.
func (v keyView) held() string {
	if v.Mode == store.Permits {
		return permits(v.Taken) + " taken"
	}
	return string(v.Mode)
}

func permits(n int) string {
	if n == 1 {
		return "1 permit"
	}
	return strconv.Itoa(n) + " permits"
}

// inMode says how a holder has a key, or a waiter wants it.
func inMode(m store.Mode, weight int, none string) string {
	switch m {
	case store.Permits:
		return permits(max(1, weight))
	case "":
		return none
	}
	return string(m)
}

// rows returns the rows of a key in a table: one for each holder that is live, or for all; or one that
// says that it is free.
func (v keyView) rows(all bool) (rows [][]cell) {
	for _, h := range v.Holders {
		if h.Live || all {
			state, tone := v.stateOf(h)
			rows = append(rows, []cell{
				{v.Key, bold}, {inMode(v.Mode, h.Weight, "free"), plain}, {h.Owner, plain}, {span(v.Now.Sub(h.Since)), plain},
				{state, tone}, {v.waiters(), yellow}, {h.Note, dim},
			})
		}
	}
	if len(rows) == 0 {
		state := cell{}
		if v.awaited() > 0 {
			state = cell{v.next(), green}
		}
		rows = append(rows, []cell{{v.Key, bold}, {"free", plain}, {}, {}, state, {v.waiters(), yellow}, {}})
	}
	return rows
}

// awaited returns how many wait, without those who are stale.
func (v keyView) awaited() (n int) {
	for _, w := range v.Line {
		if !w.Stale {
			n++
		}
	}
	return n
}

// waiters says how many wait; empty if none does.
func (v keyView) waiters() string {
	n := v.awaited()
	switch stale := len(v.Line) - n; {
	case len(v.Line) == 0:
		return ""
	case stale > 0:
		return fmt.Sprintf("%d, %d stale", n, stale)
	}
	return strconv.Itoa(n)
}

// next says who may have a free key now.
func (v keyView) next() string {
	var all []string
	for _, w := range v.Line {
		if w.Offered {
			all = append(all, w.Owner)
		}
	}
	switch len(all) {
	case 0:
		return "offered to nobody"
	case 1:
		return "offered to " + all[0]
	}
	return fmt.Sprintf("offered to %s and %d more", all[0], len(all)-1)
}

func (v keyView) stateOf(h holderView) (string, tone) {
	switch {
	case !h.Live && h.Released:
		return "released, was kept until " + span(v.Now.Sub(h.ExpireAt)) + " ago", plain
	case !h.Live:
		return "ran out " + span(v.Now.Sub(h.ExpireAt)) + " ago", red
	case h.Confirming:
		return fmt.Sprintf("ran out %s ago, being confirmed, free in %s at most", span(v.Now.Sub(h.ExpireAt)), span(h.KnownBy.Sub(v.Now))), yellow
	case h.Broken != "":
		return "broken: " + h.Broken, red
	case h.Released:
		return "released, kept for another " + span(h.ExpireAt.Sub(v.Now)), yellow
	}
	return span(h.ExpireAt.Sub(v.Now)) + " left", green
}

var keyHeading = []string{"key", "mode", "owner", "held for", "state", "waiters", "note"}

// Run lists keys.
func (c *lsCmd) Run(a *app) error {
	coll, client, err := a.locks()
	if err != nil {
		return err
	}
	p := a.table(coll, keyHeading...)
	return each(p, client.List(a.ctx, c.Prefix), func(s mongolock.Status) error { return c.one(p, viewOf(s), nil) })
}

// one shows a key: as the object, or else its view.
func (c *lsCmd) one(p *printer, v keyView, object any) error {
	switch {
	case v.Free && v.awaited() == 0 && !c.All:
		return nil
	case p.asJSON && object != nil:
		return p.row(object)
	case p.asJSON:
		return p.row(v)
	}
	return p.all(v.rows(c.All)...)
}

// A showCmd is `mongolock show`.
type showCmd struct {
	Key string `arg:"" help:"The key."`
}

func (c *showCmd) check() error { return checkKey(c.Key) }

// Run shows a key.
func (c *showCmd) Run(a *app) error {
	coll, client, err := a.locks()
	if err != nil {
		return err
	}
	s, err := client.Inspect(a.ctx, c.Key)
	if err != nil {
		return err
	}
	v := viewOf(s)
	if v.Free && len(v.Line) == 0 {
		a.missing(coll)
	}
	p := a.printer()
	if p.asJSON {
		return p.row(v)
	}
	state := cell{"free", green}
	if !v.Free {
		state = cell{"held, " + v.held(), yellow}
	}
	var rows [][]cell
	add := func(name, text string, t tone) { rows = append(rows, []cell{{name, dim}, {text, t}}) }
	add("key", v.Key, bold)
	add("state", state.text, state.tone)
	for _, h := range v.Holders {
		left, tone := v.stateOf(h)
		add("holder", h.Owner, plain)
		if h.Weight > 1 {
			add("  has", permits(h.Weight), plain)
		}
		add("  note", h.Note, plain)
		add("  since", h.Since.Format(time.RFC3339)+" ("+span(v.Now.Sub(h.Since))+")", plain)
		add("  lease", left, tone)
	}
	for _, w := range v.Line {
		text, tone := v.waitOf(w)
		add("waiter", w.Owner, plain)
		add("  waits", text, tone)
	}
	switch len(v.Line) {
	case 0:
		add("waiters", "none", plain)
	case store.LineMost:
		add("", "the line is full: others may wait too", yellow)
	}
	return errors.Join(p.all(rows...), p.flush())
}

// wanted says what a waiter waits for.
func wanted(m store.Mode, limit, weight int) string {
	text := inMode(m, weight, "in an unknown mode")
	if m == store.Permits {
		text += fmt.Sprintf(" of %d", limit)
	}
	return text
}

// waitOf says how, and for how long, a process waits.
func (v keyView) waitOf(w waiterView) (string, tone) {
	text := wanted(w.Mode, w.Limit, w.Weight) + ", for " + span(v.Now.Sub(w.Since))
	switch {
	case w.Stale:
		return text + ", stale: not seen for " + span(v.Now.Sub(w.Seen)), red
	case w.Offered:
		return text + ", and may have the key now", green
	}
	return text, yellow
}
