package main

import (
	"context"
	"fmt"

	"github.com/mongolock/mongolock"
)

// A limitCmd is `mongolock limit`.
type limitCmd struct {
	Key string `arg:"" help:"The key."`
	N   int    `arg:"" help:"How many permits it has, from 1 to 10,000; 0: as many as the programs say."`
}

// Help says what limit does.
func (*limitCmd) Help() string {
	return `Example:

   mongolock limit smtp 2

The number counts in place of that of OneOf, or --permits, until it is set again. No lease is ended:
while more permits are taken, none is granted. A higher number wakes those who wait.`
}

// Run sets the number of permits of a key.
func (c *limitCmd) Run(a *app) error {
	ctx := context.Background()
	if err := keyIsGood(c.Key); err != nil {
		return err
	}
	if c.N < 0 || c.N > 10_000 {
		return exitf(exitUsage, "N: %d: must be between 0 and 10000", c.N)
	}
	return a.withLocks(ctx, func(_ *deployment, client *mongolock.Client) error {
		if err := client.SetLimit(ctx, c.Key, c.N); err != nil {
			return err
		}
		s, err := client.Inspect(ctx, c.Key)
		if err != nil {
			return err
		}
		if p := a.printer(); p.asJSON {
			return p.row(viewOf(s))
		}
		fmt.Fprintf(a.stdout, "%s: %s\n", shown(c.Key), ofPermits(s.Set))
		return nil
	})
}

// ofPermits says how many permits a key has by a number that was set.
func ofPermits(set int) string {
	switch set {
	case 0:
		return "as many permits as the programs say"
	case 1:
		return "1 permit is set"
	}
	return fmt.Sprintf("%d permits are set", set)
}
