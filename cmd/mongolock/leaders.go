package main

import (
	"context"
	"fmt"
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
		return []cell{{shown(v.Key), bold}, {"nobody leads", yellow}, {}, {}, {}}
	}
	left := time.Duration(v.Left * float64(time.Second))
	lease := cell{span(left) + " left", green}
	if v.Confirming {
		lease = cell{"ran out, known in " + span(left) + " at most", yellow}
	}
	return []cell{{shown(v.Key), bold}, {shown(v.Owner), plain}, {span(now.Sub(v.Since)), plain}, lease, {shown(v.Note), dim}}
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

// Run shows who leads.
func (c *leadersCmd) Run(a *app) error {
	if c.Watch && len(c.Keys) != 1 {
		return exitf(exitUsage, "--watch: needs one key")
	}
	for _, key := range c.Keys {
		if err := keyIsGood(key); err != nil {
			return err
		}
	}
	ctx, stop := untilSignal()
	defer stop()
	err := a.withLocks(ctx, func(d *deployment, client *mongolock.Client) error {
		p := a.printer("key", "leader", "for", "lease", "note")
		p.none = func() { a.nothing(ctx, d.collection(&a.connection, "locks")) }
		if c.Watch {
			return c.follow(ctx, a, client, p)
		}
		show := func(s mongolock.Status, always bool) error {
			if v := leaderOf(s); always || v.Owner != "" {
				return p.row(v, v.cells(s.Now)...)
			}
			return nil
		}
		for _, key := range c.Keys {
			s, err := client.Inspect(ctx, key)
			if err == nil {
				err = show(s, true)
			}
			if err != nil {
				return err
			}
		}
		if len(c.Keys) == 0 {
			for s, err := range client.List(ctx, "") {
				if err == nil {
					err = show(s, false)
				}
				if err != nil {
					return err
				}
			}
		}
		return p.flush()
	})
	if c.Watch {
		return watched(ctx, err)
	}
	return refusedBy(ctx, err)
}

// follow shows each change of one key's leader. Of failed looks in a row it reports the first.
func (c *leadersCmd) follow(ctx context.Context, a *app, in leader.Inspector, p *printer) error {
	p.tty = false
	failed := false
	for l, err := range leader.Watch(ctx, in, c.Keys[0]) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if !failed {
				fmt.Fprintf(a.stderr, "mongolock: cannot look, trying again: %s\n", sentence(err))
			}
			failed = true
			continue
		}
		failed = false
		who := cell{text: shown(l.Owner)}
		if l.Owner == "" {
			who.text = "nobody leads"
		}
		since := ""
		if !l.Since.IsZero() {
			since = l.Since.UTC().Format(time.RFC3339)
		}
		if err := p.row(leaderView{Key: c.Keys[0], Owner: l.Owner, Note: l.Note, Since: l.Since.UTC()}, cell{text: shown(c.Keys[0])}, who, cell{text: since}); err != nil {
			return err
		}
	}
	return nil
}
