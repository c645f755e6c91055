package main

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

// A lsCmd is `mongolock ls`.
type lsCmd struct {
	Prefix string `arg:"" optional:"" help:"Only keys that begin with it."`
	All    bool   `help:"Also keys whose holders have run out and were not removed yet."`
}

// A holderView is a holder as it is shown. It has no ID: that gives the same power as the
// lease.
type holderView struct {
	Owner    string    `json:"owner"`
	Note     string    `json:"note,omitempty"`
	Since    time.Time `json:"since"`
	ExpireAt time.Time `json:"expireAt"`
	Live     bool      `json:"live"`
	Broken   string    `json:"broken,omitempty"`

	// A holder that ran out counts as live until the server can be sure, which is by KnownBy at
	// the latest.
	Confirming bool      `json:"confirming,omitempty"`
	KnownBy    time.Time `json:"knownBy,omitzero"`
}

// A keyView is a key as it is shown.
type keyView struct {
	Key      string       `json:"key"`
	Free     bool         `json:"free"`
	Mode     store.Mode   `json:"mode,omitempty"`
	Limit    int          `json:"limit,omitempty"`
	Holders  []holderView `json:"holders"`
	Wanted   bool         `json:"wanted"`
	Reserved bool         `json:"reserved,omitempty"`
	Now      time.Time    `json:"now"` // the server's clock
}

func viewOf(s mongolock.Status) keyView {
	v := keyView{Key: s.Key, Free: s.Free(), Mode: s.Mode, Limit: s.Limit, Wanted: s.Wanted, Reserved: s.Reserved(), Now: s.Now.UTC(), Holders: []holderView{}}
	for _, h := range s.Holders {
		view := holderView{Owner: h.Owner, Note: h.Note, Since: h.Since.UTC(), ExpireAt: h.ExpireAt.UTC(), Live: s.Live(h), Broken: h.Broken}
		if view.Confirming = s.Confirming(h); view.Confirming {
			view.KnownBy = h.KnownBy.UTC()
		}
		v.Holders = append(v.Holders, view)
	}
	return v
}

// held says how a key is held.
func (v keyView) held() string {
	switch v.Mode {
	case store.Permits:
		return fmt.Sprintf("permit of %d", v.Limit)
	case "":
		return "free"
	}
	return string(v.Mode)
}

// cells returns a holder's row in a table of keys.
func (v keyView) cells(h holderView) []cell {
	state, tone := v.stateOf(h)
	waits := ""
	if v.Wanted {
		waits = "wanted"
	}
	return []cell{
		{shown(v.Key), bold}, {v.held(), plain}, {shown(h.Owner), plain}, {span(v.Now.Sub(h.Since)), plain},
		{state, tone}, {waits, yellow}, {shown(h.Note), dim},
	}
}

func (v keyView) stateOf(h holderView) (string, tone) {
	switch {
	case !h.Live:
		return "ran out " + span(v.Now.Sub(h.ExpireAt)) + " ago", red
	case h.Confirming:
		return fmt.Sprintf("ran out %s ago, being confirmed, free in %s at most", span(v.Now.Sub(h.ExpireAt)), span(h.KnownBy.Sub(v.Now))), yellow
	case h.Broken != "":
		return "broken: " + shown(h.Broken), red
	}
	return span(h.ExpireAt.Sub(v.Now)) + " left", green
}

var keyHeading = []string{"key", "mode", "owner", "held for", "state", "waiters", "note"}

// Run lists keys.
func (c *lsCmd) Run(a *app) error {
	ctx := context.Background()
	return a.withLocks(ctx, func(d *deployment, client *mongolock.Client) error {
		p, some := a.printer(keyHeading...), false
		for s, err := range client.List(ctx, c.Prefix) {
			if err != nil {
				return err
			}
			some = true
			if err := c.one(p, viewOf(s)); err != nil {
				return err
			}
		}
		if !some {
			d.nothing(ctx, a, "locks")
		}
		return p.flush()
	})
}

// nothing says on standard error where a list found nothing, as a misspelt database has nothing.
func (d *deployment) nothing(ctx context.Context, a *app, standard string) {
	coll := d.collection(&a.connection, standard)
	name := d.db.Name() + "." + coll.Name()
	names, err := d.db.ListCollectionNames(ctx, bson.D{{Key: "name", Value: coll.Name()}})
	if err == nil && len(names) == 0 {
		fmt.Fprintf(a.stderr, "mongolock: there is no collection %s (--db and --collection name another)\n", shown(name))
	} else {
		fmt.Fprintf(a.stderr, "mongolock: nothing in %s\n", shown(name))
	}
}

func (c *lsCmd) one(p *printer, v keyView) error {
	if v.Free && !c.All {
		return nil
	}
	if p.asJSON {
		return p.row(v)
	}
	for _, h := range v.Holders {
		if h.Live || c.All {
			if err := p.row(nil, v.cells(h)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// A showCmd is `mongolock show`.
type showCmd struct {
	Key string `arg:"" help:"The key."`
}

// Run shows a key.
func (c *showCmd) Run(a *app) error {
	ctx := context.Background()
	if err := keyIsGood(c.Key); err != nil {
		return err
	}
	return a.withLocks(ctx, func(_ *deployment, client *mongolock.Client) error {
		s, err := client.Inspect(ctx, c.Key)
		if err != nil {
			return err
		}
		v := viewOf(s)
		p := a.printer()
		if p.asJSON {
			return p.row(v)
		}
		state := cell{"free", green}
		if !v.Free {
			state = cell{"held, " + v.held(), yellow}
		}
		rows := [][]cell{{{"key", dim}, {shown(v.Key), bold}}, {{"state", dim}, state}}
		for _, h := range v.Holders {
			left, tone := v.stateOf(h)
			rows = append(rows,
				[]cell{{"holder", dim}, {shown(h.Owner), plain}},
				[]cell{{"  note", dim}, {shown(h.Note), plain}},
				[]cell{{"  since", dim}, {h.Since.Format(time.RFC3339) + " (" + span(v.Now.Sub(h.Since)) + ")", plain}},
				[]cell{{"  lease", dim}, {left, tone}})
		}
		waits := cell{"nobody is known to wait", plain}
		switch {
		case v.Reserved:
			waits = cell{"one waits to have it alone; no other sharer is let in", yellow}
		case v.Wanted:
			waits = cell{"at least one waits", yellow}
		}
		rows = append(rows, []cell{{"waiters", dim}, waits})
		for _, row := range rows {
			if err := p.row(nil, row...); err != nil {
				return err
			}
		}
		return p.flush()
	})
}

// keyIsGood tries a key on a store in memory.
func keyIsGood(key string) error {
	if err := tryOption(key, mongolock.TTL(time.Minute)); err != nil {
		return exitf(exitUsage, "KEY: %s", reason(err))
	}
	return nil
}
