package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
)

// A partitionsCmd is `mongolock partitions`.
type partitionsCmd struct {
	Names  []string `arg:"" optional:"" name:"name" help:"Names of work that is spread by package assign (default: all)."`
	Resize int      `help:"Change the number of partitions of one name: its workers stop, and start again." placeholder:"N"`
}

// A sharingView is one worker, or the partitions that none has.
type sharingView struct {
	Name       string    `json:"name"`
	Owner      string    `json:"owner,omitempty"` // empty: no worker has the partitions
	Worker     string    `json:"worker,omitempty"`
	Weight     int       `json:"weight,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	Partitions []int     `json:"partitions"`

	age time.Duration
}

func (v sharingView) cells() []cell {
	n := fmt.Sprintf("%d partitions", len(v.Partitions))
	if v.Worker == "" {
		return []cell{{shown(v.Name), bold}, {"no worker", yellow}, {}, {}, {n, plain}, {ranges(v.Partitions), dim}}
	}
	return []cell{{shown(v.Name), bold}, {shown(v.Owner), plain}, {span(v.age), plain}, {fmt.Sprintf("weight %d", v.Weight), plain}, {n, plain}, {ranges(v.Partitions), dim}}
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

// sharingOf returns the workers of a name with their partitions, and at the end those that none has.
func sharingOf(name string, s assign.State) []sharingView {
	place := make(map[string]int)
	all := make([]sharingView, 0, len(s.Workers)+1)
	for i, w := range s.Workers {
		place[w.ID] = i
		all = append(all, sharingView{Name: name, Owner: w.Owner, Worker: w.ID, Weight: w.Weight, Since: w.Since.UTC(), age: w.Age, Partitions: []int{}})
	}
	none := sharingView{Name: name}
	for id, p := range s.Partitions {
		if i, ok := place[p.Worker]; ok {
			all[i].Partitions = append(all[i].Partitions, id)
		} else {
			none.Partitions = append(none.Partitions, id)
		}
	}
	if len(none.Partitions) > 0 {
		all = append(all, none)
	}
	return all
}

// Run shows which worker has which partitions.
func (c *partitionsCmd) Run(a *app) error {
	if c.Resize != 0 && len(c.Names) != 1 {
		return exitf(exitUsage, "--resize: needs one name")
	}
	ctx, stop := untilSignal()
	defer stop()
	return a.withLocks(ctx, func(d *deployment, client *mongolock.Client) error {
		if c.Resize != 0 {
			return assign.Resize(ctx, client, c.Names[0], c.Resize)
		}
		p := a.printer("name", "worker", "for", "weight", "has", "partitions")
		p.none = func() { a.nothing(ctx, d.collection(&a.connection, "locks")) }
		names := c.Names
		if len(names) == 0 {
			var err error
			if names, err = sharedNames(ctx, client); err != nil {
				return err
			}
		}
		for _, name := range names {
			s, err := assign.Look(ctx, client, name)
			if err != nil {
				return err
			}
			for _, v := range sharingOf(name, s) {
				if err := p.row(v, v.cells()...); err != nil {
					return err
				}
			}
		}
		return p.flush()
	})
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
