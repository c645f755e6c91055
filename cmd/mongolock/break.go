package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
)

// A breakCmd is `mongolock break`.
type breakCmd struct {
	Key    string        `arg:"" help:"The key."`
	Reason string        `required:"" help:"Why; the holders are told." placeholder:"TEXT"`
	Grace  time.Duration `help:"Remove holders that have not given up after this long; negative, as --grace=-1s: never (default: long enough for each to be told)." placeholder:"12s"`
	Yes    bool          `short:"y" help:"Do not ask."`
}

// Help says what break does.
func (*breakCmd) Help() string {
	return `Example:

   mongolock break nightly --reason 'it hangs'

Each holder is told at its next renewal, after a third of its TTL at most. Its lease ends with the
reason, and mongolock run ends its command. Break waits for that. Holders that have not given up
when the grace is over are removed. With too short a grace one that was not told may still work when
the next holder begins; only its token stops it then.`
}

// Run breaks a key.
func (c *breakCmd) Run(a *app) error {
	ctx := context.Background()
	if err := keyIsGood(c.Key); err != nil {
		return err
	}
	if strings.TrimSpace(c.Reason) == "" {
		return exitf(exitUsage, "--reason: must not be empty")
	}
	return a.withLocks(ctx, func(_ *deployment, client *mongolock.Client) error {
		s, err := client.Inspect(ctx, c.Key)
		if err != nil {
			return err
		}
		if s.Free() {
			return exitf(exitNothing, "nobody holds %s", shown(c.Key))
		}
		grace := c.Grace
		if grace == 0 {
			grace = graceOf(s)
		}
		if !c.Yes {
			if err := c.confirm(a, viewOf(s), grace); err != nil {
				return err
			}
		}
		if grace > time.Second && a.Output != "json" {
			defer c.progress(ctx, a, client, s, grace)()
		}
		marked, err := client.Break(ctx, c.Key, c.Reason, grace)
		if err != nil {
			return err
		}
		if len(marked) == 0 {
			return exitf(exitNothing, "nobody holds %s any more", shown(c.Key))
		}
		return c.report(ctx, a, client, marked)
	})
}

// sayEvery is how often break says what it waits for.
const sayEvery = 3 * time.Second

// progress says which of the holders break still waits for, until stop.
func (c *breakCmd) progress(ctx context.Context, a *app, client *mongolock.Client, s mongolock.Status, grace time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	until := time.Now().Add(grace)
	say := func(s mongolock.Status, counts func(mongolock.Holder) bool) {
		var owners []string
		for _, h := range s.Holders {
			if s.Live(h) && !h.Released && counts(h) {
				owners = append(owners, shown(h.Owner))
			}
		}
		if len(owners) > 0 {
			fmt.Fprintf(a.stderr, "mongolock: waiting for %s to give up, for %v at most …\n", strings.Join(owners, ", "), span(time.Until(until).Round(100*time.Millisecond)))
		}
	}
	say(s, func(mongolock.Holder) bool { return true })
	var done sync.WaitGroup
	done.Go(func() {
		for pause(ctx, sayEvery) {
			if s, err := client.Inspect(ctx, c.Key); err == nil {
				say(s, func(h mongolock.Holder) bool { return h.Broken != "" }) // not those that came afterwards
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// graceOf returns a time that is long enough for every live holder to be told, plus a margin. A
// holder is renewed every third of its TTL. So at least two thirds are left, and at most half
// of that is the time to its next renewal.
func graceOf(s mongolock.Status) time.Duration {
	var most time.Duration
	for _, h := range s.Holders {
		if s.Live(h) && !h.Released {
			most = max(most, h.ExpireAt.Sub(s.Now))
		}
	}
	return most/2 + 2*time.Second
}

// confirm says what will be done, and asks.
func (c *breakCmd) confirm(a *app, v keyView, grace time.Duration) error {
	fmt.Fprintf(a.stderr, "%s is held:\n", shown(v.Key))
	for _, h := range v.Holders {
		if h.Live {
			left, _ := v.stateOf(h)
			fmt.Fprintf(a.stderr, "   %s for %s, %s  %s\n", shown(h.Owner), span(v.Now.Sub(h.Since)), left, shown(h.Note))
		}
	}
	switch {
	case grace < 0:
		fmt.Fprintln(a.stderr, "Each holder's lease will end at its next renewal, or when it runs out.")
	default:
		fmt.Fprintf(a.stderr, "Each holder's lease will end at its next renewal. What is left after %v is removed, and\nothers can be granted the key while a holder that was not told may still work.\n", grace.Round(100*time.Millisecond))
	}
	return ask(a)
}

// report says which leases were broken, and the present state of the key.
func (c *breakCmd) report(ctx context.Context, a *app, client *mongolock.Client, marked []mongolock.Holder) error {
	s, err := client.Inspect(ctx, c.Key)
	if err != nil {
		return err
	}
	v := viewOf(s)
	p := a.printer()
	if p.asJSON {
		broken := []holderView{}
		for _, h := range marked {
			broken = append(broken, holderView{Owner: h.Owner, Note: h.Note, Since: h.Since.UTC(), ExpireAt: h.ExpireAt.UTC(), Broken: c.Reason})
		}
		return p.row(struct {
			Broken []holderView `json:"broken"`
			Now    keyView      `json:"after"`
		}{broken, v})
	}
	for _, h := range marked {
		fmt.Fprintf(a.stdout, "broke %s of %s\n", shown(c.Key), shown(h.Owner))
	}
	if v.Free {
		fmt.Fprintf(a.stdout, "%s is free\n", shown(c.Key))
		return nil
	}
	for _, h := range v.Holders {
		if h.Live {
			left, _ := v.stateOf(h)
			fmt.Fprintf(a.stdout, "%s is held by %s, %s\n", shown(c.Key), shown(h.Owner), left)
		}
	}
	return nil
}
