package main

import (
	"cmp"
	"errors"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store"
)

// A leadersCmd is `mongolock leaders`.
type leadersCmd struct {
	Keys  []string `arg:"" optional:"" name:"key" help:"Keys of candidates (default: all keys)."`
	Watch bool     `help:"Follow one key, and print each change."`
}

// Help says what is taken for a leader.
func (*leadersCmd) Help() string {
	return `A leader is the only holder of its key. The database does not know which keys are for leaders: name
them, or all keys that have one exclusive holder are listed.`
}

type leaderView struct {
	Key   string    `json:"key"`
	Owner string    `json:"owner,omitempty"` // empty if no process leads
	Note  string    `json:"note,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Left  float64   `json:"leftSeconds,omitempty"`

	// The leader's lease has run out, but the server is not sure yet.
	Confirming bool `json:"confirming,omitempty"`
}

func (v leaderView) cells(now time.Time) []cell {
	if v.Owner == "" {
		return []cell{{v.Key, bold}, {"nobody leads", yellow}, {}, {}, {}}
	}
	left := time.Duration(v.Left * float64(time.Second))
	lease := cell{span(left) + " left", green}
	if v.Confirming {
		lease = cell{"ran out, known in " + span(left) + " at most", yellow}
	}
	return []cell{{v.Key, bold}, {v.Owner, plain}, {span(now.Sub(v.Since)), plain}, lease, {v.Note, dim}}
}

func leaderOf(s mongolock.Status) leaderView {
	v := leaderView{Key: s.Key}
	for _, h := range s.Holders {
		if s.Live(h) && s.Mode == store.Exclusive {
			v.Owner, v.Note, v.Since, v.Left = h.Owner, h.Note, h.Since.UTC(), s.LeftOf(h).Seconds()
			v.Confirming = s.Confirming(h)
		}
	}
	return v
}

func (c *leadersCmd) check() (err error) {
	if c.Watch && len(c.Keys) != 1 {
		return exitf(exitUsage, "--watch: needs one key")
	}
	for _, key := range c.Keys {
		err = errors.Join(err, checkKey(key))
	}
	return err
}

// Run shows who leads.
func (c *leadersCmd) Run(a *app) error {
	coll, client, err := a.locks()
	if err != nil {
		return err
	}
	p := a.table(coll, "key", "leader", "for", "lease", "note")
	show := func(s mongolock.Status) error {
		v := leaderOf(s)
		return p.row(v, v.cells(s.Now)...)
	}
	switch {
	case c.Watch:
		a.watching = true
		return c.follow(a, client, p)
	case len(c.Keys) == 0:
		return each(p, client.List(a.ctx, ""), func(s mongolock.Status) error {
			if leaderOf(s).Owner == "" {
				return nil
			}
			return show(s)
		})
	}
	return each(p, func(yield func(mongolock.Status, error) bool) {
		for _, key := range c.Keys {
			if !yield(client.Inspect(a.ctx, key)) {
				return
			}
		}
	}, show)
}

// follow shows each change of one key's leader. Of failed looks in a row it reports the first.
func (c *leadersCmd) follow(a *app, in leader.Inspector, p *printer) error {
	p.tty = false
	var fails failures
	for l, err := range leader.Watch(a.ctx, in, c.Keys[0]) {
		if fails.tell(a, err) {
			continue
		}
		v := leaderView{Key: c.Keys[0], Owner: l.Owner, Note: l.Note, Since: l.Since.UTC()}
		who, since := cmp.Or(l.Owner, "nobody leads"), ""
		if !l.Since.IsZero() {
			since = v.Since.Format(time.RFC3339)
		}
		if err := p.row(v, cell{text: v.Key}, cell{text: who}, cell{text: since}); err != nil {
			return err
		}
	}
	return a.ctx.Err()
}

// failures reports whether looks fail.
type failures bool

// tell says so when they begin to.
func (f *failures) tell(a *app, err error) bool {
	if err != nil && !bool(*f) && a.ctx.Err() == nil {
		a.say("cannot look, trying again: %s", sentence(err))
	}
	*f = err != nil
	return err != nil
}
