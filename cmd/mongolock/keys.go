package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	v := keyView{Key: s.Key, Free: s.Free(), Mode: s.Mode, Now: s.Now, Holders: []holderView{}, Line: []waiterView{}}
	if s.Mode == store.Permits {
		v.Taken = s.Taken()
	}
	line := s.Waiting("")
	offered := line[:s.Offered(line)]
	for _, w := range s.Line {
		mode, limit := w.Place.Mode()
		view := waiterView{Owner: w.Owner, Mode: mode, Since: w.Since, Seen: w.Seen, Stale: s.Stale(w), Polls: w.Place.Address() == ""}
		view.Offered = slices.Contains(offered, w.Place)
		if mode == store.Permits {
			view.Limit, view.Weight = limit, severalOf(w.Place.Weight())
		}
		v.Line = append(v.Line, view)
	}
	for _, h := range s.Holders {
		view := holderView{Owner: h.Owner, Note: h.Note, Weight: severalOf(h.Weight), Since: h.Since, ExpireAt: h.ExpireAt, Live: s.Live(h), Broken: h.Broken, Released: h.Released}
		if view.Confirming = s.Confirming(h); view.Confirming {
			view.KnownBy = h.KnownBy
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

func permits(n int) string {
	if n == 1 {
		return "1 permit"
	}
	return strconv.Itoa(n) + " permits"
}

// inMode says how a holder has a key, or a waiter wants it.
func inMode(m store.Mode, weight int) string {
	if m == store.Permits {
		return permits(max(1, weight))
	}
	return cmp.Or(string(m), "in an unknown mode")
}

// rows returns the rows of a key in a table: one for each holder that is live, or for all; or one that
// says that it is free.
func (v keyView) rows(all bool) (rows [][]string) {
	for _, h := range v.Holders {
		if h.Live || all {
			mode := "free"
			if v.Mode != "" {
				mode = inMode(v.Mode, h.Weight)
			}
			rows = append(rows, []string{v.Key, mode, h.Owner, span(v.Now.Sub(h.Since)), v.stateOf(h), v.waiters(), h.Note})
		}
	}
	if len(rows) == 0 {
		state := ""
		if v.awaited() > 0 {
			state = v.next()
		}
		rows = append(rows, []string{v.Key, "free", "", "", state, v.waiters(), ""})
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
	return "offered to " + cmp.Or(strings.Join(all, ", "), "nobody")
}

func (v keyView) stateOf(h holderView) string {
	left := h.ExpireAt.Sub(v.Now)
	switch {
	case !h.Live && h.Released:
		return "released, was kept until " + span(-left) + " ago"
	case !h.Live:
		return "ran out " + span(-left) + " ago"
	case h.Confirming:
		return fmt.Sprintf("ran out %s ago, being confirmed, free in %s at most", span(-left), span(h.KnownBy.Sub(v.Now)))
	case h.Broken != "":
		return "broken: " + h.Broken
	case h.Released:
		return "released, kept for another " + span(left)
	}
	return span(left) + " left"
}

var keyHeading = []string{"key", "mode", "owner", "held for", "state", "waiters", "note"}

// Run lists keys.
func (c *lsCmd) Run(a *app) error {
	coll, client, err := a.locks()
	if err != nil {
		return err
	}
	p := a.table(coll, keyHeading...)
	return each(p, client.List(a.ctx, c.Prefix), func(s mongolock.Status) error {
		v := viewOf(s)
		return p.key(v, c.All, v)
	})
}

// key shows a key: as an object, or as its rows. One that is free and that nobody waits for is shown only with all.
func (p *printer) key(v keyView, all bool, object any) error {
	switch {
	case v.Free && v.awaited() == 0 && !all:
		return nil
	case p.asJSON:
		return p.row(object)
	}
	return p.all(v.rows(all)...)
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
	return errors.Join(p.all(v.details()...), p.flush())
}

// details returns all that is known of a key, as names and values.
func (v keyView) details() [][]string {
	state := "free"
	switch {
	case v.Free:
	case v.Mode == store.Permits:
		state = "held, " + permits(v.Taken) + " taken"
	default:
		state = "held, " + string(v.Mode)
	}
	rows := [][]string{{"key", v.Key}, {"state", state}}
	for _, h := range v.Holders {
		rows = append(rows, []string{"holder", h.Owner})
		if h.Weight > 1 {
			rows = append(rows, []string{"  has", permits(h.Weight)})
		}
		rows = append(rows, []string{"  note", h.Note}, []string{"  since", h.Since.Format(time.RFC3339) + " (" + span(v.Now.Sub(h.Since)) + ")"}, []string{"  lease", v.stateOf(h)})
	}
	for _, w := range v.Line {
		rows = append(rows, []string{"waiter", w.Owner}, []string{"  waits", v.waitOf(w)})
	}
	switch len(v.Line) {
	case 0:
		rows = append(rows, []string{"waiters", "none"})
	case store.LineMost:
		rows = append(rows, []string{"", "the line is full: others may wait too"})
	}
	return rows
}

// wanted says what a waiter waits for.
func wanted(m store.Mode, limit, weight int) string {
	if m == store.Permits {
		return fmt.Sprintf("%s of %d", permits(max(1, weight)), limit)
	}
	return inMode(m, weight)
}

// waitOf says how, and for how long, a process waits.
func (v keyView) waitOf(w waiterView) string {
	text := wanted(w.Mode, w.Limit, w.Weight) + ", for " + span(v.Now.Sub(w.Since))
	switch {
	case w.Stale:
		return text + ", stale: not seen for " + span(v.Now.Sub(w.Seen))
	case w.Offered:
		return text + ", and may have the key now"
	}
	return text
}
