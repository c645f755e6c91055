package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
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

func (c *doctorCmd) check() error {
	if c.TTL < 100*time.Millisecond {
		return exitf(exitUsage, "--ttl=%v: must be at least 100ms", c.TTL)
	}
	return checkMargin(c.Margin, c.TTL)
}

// A level says how serious a line is.
type level string

const (
	ok      level = "ok"
	warning level = "warning"
	failure level = "failure"
)

// levels has the exit code of each.
var levels = map[level]int{ok: 0, warning: exitDoctorWarns, failure: exitDoctorFails}

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

	found []finding // by the check that runs
}

// checks stand in the order in which they help: without the first ones the others say little.
var checks = []func(*exam, context.Context){
	(*exam).reachable, (*exam).topology, (*exam).traps, (*exam).clocks, (*exam).collection, (*exam).rights,
	(*exam).durable, (*exam).index, (*exam).wakeUps, (*exam).life, (*exam).keys,
}

// checkFor bounds one check.
const checkFor = 20 * time.Second

// Run examines the deployment.
func (c *doctorCmd) Run(a *app) error {
	x := &exam{c: c, a: a}
	p := a.printer()
	worst := 0
	d, err := a.reach()
	if err != nil {
		code, say := verdict(err)
		switch {
		case a.ctx.Err() != nil || code == exitUsage:
			return err
		case code == exitRights:
			x.fail("reachable", "check the user, its password and authSource", "%s", say)
		default:
			x.fail("reachable", "check the address, the network, and whether the set has a primary", "%s", say)
		}
		return errors.Join(p.finding(x.found[0]), exitf(exitDoctorFails, ""))
	}
	a.atEnd(d.close)
	x.begin(a.ctx, d)
	defer x.clean()
	for _, check := range checks {
		within, cancel := context.WithTimeout(a.ctx, checkFor)
		x.found = nil
		check(x, within)
		cancel()
		if a.ctx.Err() != nil {
			return a.ctx.Err()
		}
		for _, f := range x.found {
			worst = max(worst, levels[f.Level])
			if err := p.finding(f); err != nil {
				return err
			}
		}
	}
	if worst > 0 {
		return exitf(worst, "")
	}
	return nil
}

// finding writes a line. On a terminal what to do stands below it.
func (p *printer) finding(f finding) error {
	if p.table == nil {
		return p.row(f, string(f.Level), f.Check, f.Says, f.Do)
	}
	text := fmt.Sprintf("%-8s %-14s %s\n", f.Level, f.Check, clean(f.Says))
	if f.Do != "" {
		text += strings.Repeat(" ", 24) + "→ " + clean(f.Do) + "\n"
	}
	_, err := fmt.Fprint(p.w, text)
	return err
}

func (x *exam) fine(check, format string, args ...any) {
	x.found = append(x.found, finding{check, ok, fmt.Sprintf(format, args...), ""})
}

func (x *exam) warn(check, do, format string, args ...any) {
	x.found = append(x.found, finding{check, warning, fmt.Sprintf(format, args...), do})
}

func (x *exam) fail(check, do, format string, args ...any) {
	x.found = append(x.found, finding{check, failure, fmt.Sprintf(format, args...), do})
}

// begin finds out what exists, and where the checks write.
func (x *exam) begin(ctx context.Context, d *deployment) {
	x.d = d
	x.real = d.collection(&x.a.connection, "locks")
	x.coll = x.real
	x.scratch = "mongolock-doctor:" + rand.Text()
	names, err := d.db.ListCollectionNames(ctx, bson.D{})
	if err != nil { // without the right to ask, assume that it exists, or that the first write makes it
		x.there, x.woke = true, true
		return
	}
	x.there = slices.Contains(names, x.real.Name())
	if !x.there {
		x.coll = d.db.Collection(x.real.Name() + "_doctor_" + strings.ToLower(rand.Text()[:8]))
	}
	x.woke = slices.Contains(names, x.wakes().Name())
}

// clean removes what the checks made.
func (x *exam) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, _ = x.coll.DeleteMany(ctx, x.mine()) // what is left holds nothing, and the TTL index removes it
	if !x.there {
		_ = x.coll.Drop(ctx)
	}
	if !x.woke {
		_ = x.wakes().Drop(ctx)
	}
}

// wakes returns the collection of the wake-ups beside the locks that the checks write.
func (x *exam) wakes() *mongo.Collection { return x.d.db.Collection(x.coll.Name() + ".wake") }

// mine returns the filter of the keys that the checks write.
func (x *exam) mine() bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: x.scratch}, {Key: "$lt", Value: x.scratch + "\uffff"}}}}
}
