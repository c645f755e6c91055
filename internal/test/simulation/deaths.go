package simulation

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
)

// kill ends a process: it sends nothing any more, and nothing reaches it. Its places stay in line, and
// its holders run out. With w.mu held.
func (w *world) kill(p *process) {
	if p.dead {
		return
	}
	w.fault("client killed")
	w.logf("client %d is killed", p.id)
	p.dead = true
	w.record(Step{Kind: Killed, Event: history.Event{Client: p.id}})
	w.noteLocked(history.Event{Kind: history.Trouble, Client: p.id, Until: neverEnds, Note: history.Killed})
}

// planKills has some processes killed.
func (w *world) planKills(processes []*process, d *rng) {
	if w.plan.noFaults && !w.plan.deaths || w.plan.dying {
		return
	}
	for _, p := range processes[1:] {
		if !d.chance(200) && !(w.plan.deaths && d.chance(300)) {
			continue
		}
		w.after(d.between(time.Second, w.plan.faultsEnd), func() { w.kill(p) })
	}
}

// mourn makes processes die again and again, of a crowd around one key, and nothing else go wrong.
func (x *faultPlan) mourn(d *rng) {
	x.gatherMortals(d)
	x.dying, x.loop, x.allHear = true, d.chance(400), d.chance(600)
	x.ttl = oneOf(d, time.Second, 2*time.Second, 5*time.Second)
	x.margin, x.faultsEnd = x.ttl/10, x.faultsEnd/2
}

// reap kills processes for as long as faults go on, and starts others in their stead. In a crash loop
// it is always the newest. Otherwise it is most of those that stand first in line, and now and then whoever
// has the key: one that lives stands behind them. It returns those that it started.
func (w *world) reap(processes []*process, key string, start func() *process) (started []*process) {
	d := w.rng("reaper")
	least, most := 3*time.Second, 15*time.Second
	if w.plan.loop {
		least, most = 500*time.Millisecond, 3*time.Second
	}
	for w.since() < w.plan.faultsEnd {
		time.Sleep(d.between(least, most))
		all := slices.Concat(processes, started)
		victims := all[len(all)-1:]
		w.mu.Lock()
		if !w.plan.loop {
			victims = w.firstOf(key, all, d)
		}
		for _, p := range victims {
			w.kill(p)
		}
		w.mu.Unlock()
		time.Sleep(d.between(50*time.Millisecond, time.Second))
		for range victims {
			started = append(started, start())
			time.Sleep(d.between(time.Microsecond, 20*time.Millisecond))
		}
	}
	return started
}

// firstOf returns some of those that stand first in the line of a key, but not all, and now and then those
// that have it. With w.mu held.
func (w *world) firstOf(key string, all []*process, d *rng) (first []*process) {
	holders, line := w.atKey(key)
	for _, client := range line {
		if p := all[client]; !p.dead && !slices.Contains(first, p) {
			first = append(first, p)
		}
	}
	if len(first) < 2 {
		return nil
	}
	first = first[:1+d.n(len(first)-1)]
	for _, client := range holders {
		if p := all[client]; d.chance(300) && !slices.Contains(first, p) {
			first = append(first, p)
		}
	}
	return first
}

// atKey returns which clients have a key, and which stand in its line, in order. With w.mu held.
func (w *world) atKey(key string) (holders, line []int) {
	if w.mem != nil {
		all, _ := w.mem.Look(context.Background(), []string{key})
		for _, s := range all {
			for _, h := range s.Holders {
				holders = append(holders, clientOf(h.Owner))
			}
			for _, p := range s.Line {
				line = append(line, clientOf(p.Owner))
			}
		}
		return holders, line
	}
	ownerOf := func(v any) int {
		d, _ := v.(bson.D)
		owner, _ := lookup(d, "owner").(string)
		return clientOf(owner)
	}
	for _, c := range w.shards {
		for _, doc := range c.leader.db.Docs(locksNS) {
			if doc[0].Value != key {
				continue
			}
			of, _ := lookup(doc, "holders").(bson.D)
			for _, h := range of {
				holders = append(holders, ownerOf(h.Value))
			}
			names, _ := lookup(doc, "line").(bson.A)
			waits, _ := lookup(doc, "waits").(bson.D)
			for _, v := range names {
				name, _ := v.(string)
				line = append(line, ownerOf(lookup(waits, name)))
			}
		}
	}
	return holders, line
}
