package simulation

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
)

// A counter is a document that the clients of a run with updates change: each change counts
// one and adds its name. So a change that was lost is missed by name.
type counter struct {
	ID      string   `bson:"_id"`
	N       int      `bson:"n"`
	Changes []string `bson:"changes"`
}

// How a call that changes a document ended.
const (
	changed   = "changed"
	unchanged = "unchanged" // and surely never will be by it
	doubtful  = "unknown"
)

// An updateRun is the history of a run with updates. It is protected by the world's mutex.
type updateRun struct {
	w     *world
	calls map[string]string // by the names of changes: how they ended
	keys  map[string]string // by the names of changes: of which document
	names []string          // in the order in which they ended
	found []history.Violation
}

// RunUpdates runs one history of clients that change documents with doclock's Update, and
// some of them under its locks, against the same servers and with the same faults as Run.
func RunUpdates(seed uint64, s Settings) *Outcome {
	w := newWorld(seed, s)
	w.late(s)
	run := &updateRun{w: w, calls: map[string]string{}, keys: map[string]string{}}
	w.mu.Lock()
	w.logf("seed %d: %s", seed, w.plan.String())
	w.createCounters()
	w.schedule()
	w.mu.Unlock()
	d := w.rng("cast")
	keys := allKeys[:1+d.n(2)]
	if w.plan.elections {
		keys = allKeys[:1]
	}
	processes := make([]*process, 2+d.n(3))
	all := make([]*doclock.Locks[counter], len(processes))
	for i := range processes {
		processes[i], all[i] = w.updateProcess(i, s.Margin)
	}
	w.planKills(processes, d)
	var users sync.WaitGroup
	number := 0
	for i, p := range processes {
		for range 1 + d.n(3) {
			number++
			if s.Users > 0 && number > s.Users {
				continue
			}
			u := &updateUser{run: run, p: p, locks: all[i], keys: keys, name: "u" + itoa(number)}
			u.rng = w.rng(u.name)
			steps := 6 + u.rng.n(10)
			if s.Steps > 0 {
				steps = min(steps, s.Steps)
			}
			users.Go(func() { u.work(steps) })
		}
	}
	users.Wait()
	w.waitUntilExpired()
	run.lastRound(processes, all)
	for i, p := range processes {
		time.Sleep(time.Microsecond + time.Duration(p.id)*time.Nanosecond)
		_ = all[i].Close()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	run.judge()
	for _, how := range run.calls {
		w.faults["call: "+how]++
	}
	return &Outcome{
		History: &history.History{}, Log: w.text(), Faults: w.faults, Commands: w.sends,
		Long: w.since(), Plan: w.plan.String(), stuck: run.found, Recording: w.describe(0),
	}
}

// createCounters inserts the documents, into the collection that routers take for sharded.
func (w *world) createCounters() {
	for _, key := range allKeys {
		c := w.cluster
		if len(w.shards) > 1 {
			c = w.shards[w.shardOf(locksNS, key)]
		}
		doc := bson.D{{Key: "_id", Value: key}, {Key: "n", Value: int32(0)}, {Key: "changes", Value: bson.A{}}}
		_, _ = c.leader.db.Do(docdb.Command{Name: "insert", DB: lockDB, Body: bson.D{{Key: "insert", Value: lockColl}, {Key: "documents", Value: bson.A{doc}}}}, c.leader.now(), false)
		c.settle(c.leader)
	}
}

func (w *world) updateProcess(id int, margin time.Duration) (*process, *doclock.Locks[counter]) {
	p := &process{world: w, id: id}
	driver, err := connect(p, w.plan.retries)
	if err != nil {
		panic(err)
	}
	w.suspend(p)
	locks, err := doclock.New[counter](driver.Database(lockDB).Collection(lockColl), p.documentOptions(margin)...)
	if err != nil {
		panic(err)
	}
	return p, locks
}

// ended notes how a change ended.
func (r *updateRun) ended(key, name string, rounds int, err error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	how := unchanged
	switch {
	case err == nil:
		how = changed
	case errors.Is(err, mongolock.ErrOutcomeUnknown):
		how = doubtful
	}
	if rounds > 1 {
		r.w.fault("update repeated")
	}
	r.calls[name], r.keys[name] = how, key
	r.names = append(r.names, name)
	kind := history.Failed
	if how == changed {
		kind = history.Wrote
	}
	r.w.record(Step{Kind: Noted, Event: history.Event{Kind: kind, Key: key, ID: name, Note: how}})
	r.w.logf("%s of %s: %s, %v", name, key, how, err)
}

func (r *updateRun) violation(check, format string, args ...any) {
	r.found = append(r.found, history.Violation{Check: check, At: r.w.since(), Text: fmt.Sprintf(format, args...)})
}

// lastRound has each process that is alive change each document once more.
func (r *updateRun) lastRound(processes []*process, all []*doclock.Locks[counter]) {
	for i, p := range processes {
		if p.isDead() {
			continue
		}
		u := &updateUser{run: r, p: p, locks: all[i], name: "last" + itoa(p.id), rng: r.w.rng("last " + itoa(p.id))}
		for _, key := range allKeys {
			var err error
			for range 3 {
				if err = u.update(key, 2*r.w.plan.ttl+30*time.Second, 0, nil); err == nil {
					break
				}
				time.Sleep(u.rng.between(time.Microsecond, 10*time.Millisecond))
			}
			if err != nil {
				r.w.mu.Lock()
				r.violation("stuck", "%s can no longer be changed: %v", key, err)
				r.w.mu.Unlock()
			}
		}
	}
}

// judge reads what the last primary has: a write that was rolled back never happened.
//
//   - Every write adds at most one change, to all that were there.
//   - A change that its caller was told of is there, once. A change that its caller was told
//     did not happen is not there.
func (r *updateRun) judge() {
	if r.w.cluster.leader == nil {
		return
	}
	last := map[string][]string{}
	for _, e := range r.w.writes() {
		if e.NS != locksNS {
			continue
		}
		key, _ := e.After[0].Value.(string)
		before, after := changesOf(e.Before), changesOf(e.After)
		if len(after) < len(before) || len(after) > len(before)+1 || !slices.Equal(before, after[:len(before)]) {
			r.violation("lost update", "%s went from %v to %v by %s", key, before, after, e.Tag.(*mark).name)
		}
		if n, _ := lookup(e.After, "n").(int32); int(n) != len(after) {
			r.violation("lost update", "%s counts %d changes and has %d", key, n, len(after))
		}
		last[key] = after
	}
	for _, name := range r.names {
		times := 0
		for _, other := range last[r.keys[name]] {
			if other == name {
				times++
			}
		}
		switch how := r.calls[name]; {
		case how == changed && times != 1, how == unchanged && times != 0, times > 1:
			r.violation("outcome", "%s of %s ended as %s, and is there %d times", name, r.keys[name], how, times)
		}
	}
}

func changesOf(d bson.D) (all []string) {
	values, _ := lookup(d, "changes").(bson.A)
	for _, v := range values {
		all = append(all, fmt.Sprint(v))
	}
	return all
}
