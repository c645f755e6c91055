package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

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

func (c *breakCmd) check() error {
	if strings.TrimSpace(c.Reason) == "" {
		return exitf(exitUsage, "--reason: must not be empty")
	}
	return checkKey(c.Key)
}

// Run breaks a key.
func (c *breakCmd) Run(a *app) error {
	_, client, err := a.locks()
	if err != nil {
		return err
	}
	s, err := client.Inspect(a.ctx, c.Key)
	if err != nil {
		return err
	}
	if s.Free() {
		return exitf(exitNothing, "nobody holds %s", c.Key)
	}
	grace := cmp.Or(c.Grace, graceOf(s))
	if !c.Yes {
		if err := a.ask(c.question(viewOf(s), grace)...); err != nil {
			return err
		}
	}
	if owners := told(s); grace > time.Second && len(owners) > 0 {
		a.say("waiting for %s to give up, for %v at most …", strings.Join(owners, ", "), span(grace.Round(100*time.Millisecond)))
	}
	marked, err := client.Break(a.ctx, c.Key, c.Reason, grace)
	if err != nil {
		return err
	}
	if len(marked) == 0 {
		return exitf(exitNothing, "nobody holds %s any more", c.Key)
	}
	if s, err = client.Inspect(a.ctx, c.Key); err != nil {
		return err
	}
	return c.report(a, viewOf(s), marked)
}

// told returns the owners that have to give up.
func told(s mongolock.Status) (owners []string) {
	for _, h := range s.Holders {
		if s.Live(h) && !h.Released {
			owners = append(owners, h.Owner)
		}
	}
	return owners
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

// question says what will be done.
func (c *breakCmd) question(v keyView, grace time.Duration) []string {
	lines := []string{v.Key + " is held:"}
	for _, h := range v.Holders {
		if h.Live {
			lines = append(lines, fmt.Sprintf("   %s for %s, %s  %s", h.Owner, span(v.Now.Sub(h.Since)), v.stateOf(h), h.Note))
		}
	}
	if grace < 0 {
		return append(lines, "Each holder's lease will end at its next renewal, or when it runs out.")
	}
	return append(lines, fmt.Sprintf("Each holder's lease will end at its next renewal. What is left after %v is removed, and", grace.Round(100*time.Millisecond)),
		"others can be granted the key while a holder that was not told may still work.")
}

// report says which leases were broken, and the present state of the key.
func (c *breakCmd) report(a *app, v keyView, marked []mongolock.Holder) (err error) {
	if a.asJSON() {
		broken := []holderView{}
		for _, h := range marked {
			broken = append(broken, holderView{Owner: h.Owner, Note: h.Note, Since: h.Since.UTC(), ExpireAt: h.ExpireAt.UTC(), Broken: c.Reason})
		}
		return encode(a.stdout, struct {
			Broken []holderView `json:"broken"`
			Now    keyView      `json:"after"`
		}{broken, v})
	}
	for _, h := range marked {
		err = errors.Join(err, a.print("broke %s of %s", c.Key, h.Owner))
	}
	if v.Free {
		err = errors.Join(err, a.print("%s is free", c.Key))
	}
	for _, h := range v.Holders {
		if h.Live {
			err = errors.Join(err, a.print("%s is held by %s, %s", c.Key, h.Owner, v.stateOf(h)))
		}
	}
	return err
}

// ask shows a question, and asks on the terminal.
func (a *app) ask(lines ...string) error {
	if a.asJSON() {
		a.say("%s", strings.Join(lines, "; "))
	}
	for _, line := range lines {
		if !a.asJSON() {
			fmt.Fprintln(a.stderr, clean(line))
		}
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return exitf(exitDeclined, "standard input is not a terminal: nothing is broken without --yes")
	}
	fmt.Fprint(a.stderr, "Break it? [y/N] ")
	answers := make(chan string, 1)
	go func() { // ends with an answer, or the process
		answer, _ := bufio.NewReader(os.Stdin).ReadString('\n') // none is no
		answers <- strings.ToLower(strings.TrimSpace(answer))
	}()
	select {
	case <-a.ctx.Done():
		return a.ctx.Err()
	case answer := <-answers:
		if answer != "y" && answer != "yes" {
			return exitf(exitDeclined, "not confirmed")
		}
		return nil
	}
}
