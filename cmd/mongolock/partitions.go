package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
)

// A partitionsCmd is `mongolock partitions`.
type partitionsCmd struct {
	Names  []string `arg:"" optional:"" name:"name" help:"Names of work that is spread by package assign (default: all)."`
	Resize *int     `help:"Change the number of partitions of one name: its workers stop, and start again." placeholder:"N"`
}

// A sharingView is one worker with its partitions. Others show partitions that no worker has: those that
// are held by hand have an owner and no worker, and those that are free have neither.
type sharingView struct {
	Name       string    `json:"name"`
	Owner      string    `json:"owner,omitempty"`
	Worker     string    `json:"worker,omitempty"`
	Weight     int       `json:"weight,omitempty"` // of one that drains it is not known
	Since      time.Time `json:"since,omitzero"`
	Partitions []int     `json:"partitions"`

	age time.Duration
}

func (v sharingView) fields() []string {
	owner, age, weight := v.Owner, "", ""
	switch {
	case v.Owner == "":
		owner = "no worker"
	case v.Worker == "":
		weight = "held by hand"
	case v.Weight == 0:
		weight = "drains"
	default:
		age, weight = span(v.age), fmt.Sprintf("weight %d", v.Weight)
	}
	return []string{v.Name, owner, age, weight, fmt.Sprintf("%d partitions", len(v.Partitions)), ranges(v.Partitions)}
}

// ranges shows ascending numbers, as in "0-17 19".
func ranges(all []int) string {
	var parts []string
	for i := 0; i < len(all); {
		last := i
		for last+1 < len(all) && all[last+1] == all[last]+1 {
			last++
		}
		part := strconv.Itoa(all[i])
		if last > i {
			part += "-" + strconv.Itoa(all[last])
		}
		parts = append(parts, part)
		i = last + 1
	}
	return strings.Join(parts, " ")
}

// sharingOf returns the workers of a name with their partitions, then others that have some, and at the
// end the partitions that are free.
func sharingOf(name string, s assign.State) (all []sharingView) {
	for _, w := range s.Workers {
		all = append(all, sharingView{Name: name, Owner: w.Owner, Worker: w.ID, Weight: w.Weight, Since: w.Since.UTC(), age: w.Age, Partitions: []int{}})
	}
	for id, p := range s.Partitions {
		i := slices.IndexFunc(all, func(v sharingView) bool { return v.Worker == p.Worker && v.Owner == p.Owner })
		if i < 0 {
			i = len(all)
			all = append(all, sharingView{Name: name, Owner: p.Owner, Worker: p.Worker})
		}
		all[i].Partitions = append(all[i].Partitions, id)
	}
	if i := slices.IndexFunc(all, func(v sharingView) bool { return v.Owner == "" }); i >= 0 {
		all = append(slices.Delete(slices.Clone(all), i, i+1), all[i])
	}
	return all
}

func (c *partitionsCmd) check() (err error) {
	switch {
	case c.Resize != nil && (*c.Resize < 1 || *c.Resize > 5000):
		return exitf(exitUsage, "--resize=%d: must be from 1 to 5000", *c.Resize)
	case c.Resize != nil && len(c.Names) != 1:
		return exitf(exitUsage, "--resize: needs one name")
	}
	for _, name := range c.Names {
		err = errors.Join(err, checkName("NAME", name, 256))
	}
	return err
}

// Run shows which worker has which partitions.
func (c *partitionsCmd) Run(a *app) error {
	coll, client, err := a.locks()
	if err != nil {
		return err
	}
	if c.Resize != nil {
		return a.resize(client, c.Names[0], *c.Resize)
	}
	names := c.Names
	if len(names) == 0 {
		if names, err = sharedNames(a.ctx, client); err != nil {
			return err
		}
	}
	p := a.table(coll, "name", "worker", "for", "weight", "has", "partitions")
	for _, name := range names {
		s, err := assign.Look(a.ctx, client, name)
		if err != nil {
			return err
		}
		for _, v := range sharingOf(name, s) {
			if err := p.row(v, v.fields()...); err != nil {
				return err
			}
		}
	}
	return p.flush()
}

// resize changes the number of partitions. It says on standard error if there was no worker: a name may be
// misspelt.
func (a *app) resize(client *mongolock.Client, name string, n int) error {
	if err := assign.Resize(a.ctx, client, name, n); err != nil {
		return err
	}
	s, err := assign.Look(a.ctx, client, name)
	if err == nil && len(s.Workers) == 0 {
		a.say("no worker of %s runs: nothing is changed", name)
	}
	return err
}

// sharedNames returns the names that have workers: those of the keys of seats.
func sharedNames(ctx context.Context, client *mongolock.Client) (names []string, err error) {
	for s, err := range client.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		if name, is := strings.CutSuffix(s.Key, "/workers"); is && name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}
