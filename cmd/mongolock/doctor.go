package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/traps"
)

// A doctorCmd is `mongolock doctor`.
type doctorCmd struct {
	TTL    time.Duration `name:"ttl" help:"The TTL in use: clocks and round trips are compared with its margin (default: 30s)." default:"30s" placeholder:"30s"`
	Margin time.Duration `help:"The margin in use (default: a tenth of the TTL, at most 1s)." placeholder:"1s"`
	Long   time.Duration `help:"Warn of a key that has been held for longer than this (default: 24h)." default:"24h" placeholder:"24h"`
}

// Help says what is done.
func (*doctorCmd) Help() string {
	return `Each line is one check: ok, a warning or a failure, and what to do about it. The exit code is that
of the worst line: 0, 1 or 2.

Rights and the protocol are tried with test keys, mongolock-doctor:…, which are removed. If the
collection of locks does not exist yet, a temporary one is used. Collections that doctor makes are
dropped; a notice stays in a collection of wake-ups that was there, until it is overwritten.`
}

func (c *doctorCmd) margin() time.Duration { return marginOf(c.Margin, c.TTL) }

// A level says how serious a line is.
type level string

const (
	ok      level = "ok"
	warning level = "warning"
	failure level = "failure"
)

// levels has the exit code of each.
var levels = map[level]int{ok: 0, warning: exitDoctorWarns, failure: exitDoctorFails}

func (l level) tone() tone { return []tone{green, yellow, red}[levels[l]] }

// A finding is one line.
type finding struct {
	Check string `json:"check"`
	Level level  `json:"level"`
	Says  string `json:"says"`
	Do    string `json:"do,omitempty"`
}

// An exam is one run of the doctor.
type exam struct {
	c *doctorCmd
	a *app
	d *deployment

	coll    *mongo.Collection // where the checks write
	real    *mongo.Collection // where the locks are
	there   bool              // the collection of the locks exists
	woke    bool              // and so does that of its wake-ups
	facts   traps.Deployment
	hello   bson.Raw
	scratch string // the prefix of the keys that the checks write

	level level // the worst so far
	p     *printer
}

// A check is a group of lines. It is given up after a while.
type check struct {
	name string
	run  func(*exam, context.Context) []finding
}

// checks stand in the order in which they help: without the first ones the others say little.
var checks = []check{
	{"reachable", (*exam).reachable},
	{"topology", (*exam).topology},
	{"traps", (*exam).traps},
	{"clocks", (*exam).clocks},
	{"collection", (*exam).collection},
	{"rights", (*exam).rights},
	{"durable writes", (*exam).durable},
	{"index", (*exam).index},
	{"wake-ups", (*exam).wakeUps},
	{"a lock's life", (*exam).life},
	{"", (*exam).keys}, // three lines from one look
	{"left behind", (*exam).leftBehind},
}

// checkFor bounds one check.
const checkFor = 20 * time.Second

func (c *doctorCmd) check() error {
	if c.TTL < 100*time.Millisecond {
		return exitf(exitUsage, "--ttl=%v: must be at least 100ms", c.TTL)
	}
	return checkMargin(c.Margin, c.TTL)
}

// Run examines the deployment.
func (c *doctorCmd) Run(a *app) error {
	x := &exam{c: c, a: a, level: ok, p: a.printer()}
	d, err := a.reach()
	switch code, say := verdict(err); {
	case err == nil:
	case a.ctx.Err() != nil || code == exitUsage:
		return err
	case code == exitRights:
		return errors.Join(x.say(finding{"reachable", failure, say, "check the user, its password and authSource"}), exitf(exitDoctorFails, ""))
	default:
		return errors.Join(x.say(finding{"reachable", failure, say, "check the address, the network, and whether the set has a primary"}), exitf(exitDoctorFails, ""))
	}
	a.atEnd(d.close)
	x.begin(a.ctx, d)
	defer x.clean()
	for _, check := range checks {
		within, cancel := context.WithTimeout(a.ctx, checkFor)
		findings := check.run(x, within)
		cancel()
		if a.ctx.Err() != nil {
			return a.ctx.Err()
		}
		for _, f := range findings {
			f.Check = cmp.Or(f.Check, check.name)
			if err := x.say(f); err != nil {
				return err
			}
		}
	}
	if code := levels[x.level]; code > 0 {
		return exitf(code, "")
	}
	return nil
}

// say writes a line.
func (x *exam) say(f finding) error {
	if levels[f.Level] > levels[x.level] {
		x.level = f.Level
	}
	if x.p.asJSON || !x.p.tty {
		return x.p.row(f, cell{text: string(f.Level)}, cell{text: f.Check}, cell{text: f.Says}, cell{text: f.Do})
	}
	var b strings.Builder
	b.WriteString(x.p.coloured(fmt.Sprintf("%-8s", f.Level), f.Level.tone()) + " ")
	indent := strings.Repeat(" ", 9+15)
	wrap(&b, fmt.Sprintf("%-15s", f.Check)+clean(f.Says), 9, indent, x.p.width)
	if f.Do != "" {
		b.WriteString(indent)
		wrap(&b, "→ "+clean(f.Do), len(indent), indent+"  ", x.p.width)
	}
	_, err := io.WriteString(x.p.w, b.String())
	return err
}

// wrap writes a text from a column on, in lines of a terminal's width.
func wrap(b *strings.Builder, text string, column int, indent string, width int) {
	if width < 60 {
		width = 100
	}
	for i, word := range strings.SplitAfter(text, " ") {
		if i > 0 && column+len([]rune(strings.TrimSuffix(word, " "))) > width {
			b.WriteString("\n" + indent)
			column = len(indent)
		} else if i > 0 {
			b.WriteString(" ")
		}
		word = strings.TrimSuffix(word, " ")
		b.WriteString(word)
		column += len([]rune(word)) + 1
	}
	b.WriteString("\n")
}

func fine(format string, args ...any) []finding {
	return []finding{{Level: ok, Says: fmt.Sprintf(format, args...)}}
}

func warn(do, format string, args ...any) []finding {
	return []finding{{Level: warning, Says: fmt.Sprintf(format, args...), Do: do}}
}

func fail(do, format string, args ...any) []finding {
	return []finding{{Level: failure, Says: fmt.Sprintf(format, args...), Do: do}}
}
