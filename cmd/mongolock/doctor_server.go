package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/mongolock/mongolock/traps"
)

// begin finds out what exists, and where the checks write.
func (x *exam) begin(ctx context.Context, d *deployment) {
	x.d = d
	x.real = d.collection(&x.a.connection, "locks")
	x.coll = x.real
	x.scratch = "mongolock-doctor:" + rand.Text()
	names, err := d.db.ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: bson.A{x.real.Name(), x.real.Name() + ".wake"}}}}})
	if err != nil { // without the right to ask, assume that it exists, or that the first write makes it
		x.there, x.woke = true, true
		return
	}
	x.there = slices.Contains(names, x.real.Name())
	x.woke = slices.Contains(names, x.real.Name()+".wake")
	if !x.there {
		x.coll = d.db.Collection(x.real.Name() + "_doctor_" + strings.ToLower(rand.Text()[:8]))
		x.woke = false
	}
}

// clean removes what the checks made.
func (x *exam) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, _ = x.coll.DeleteMany(ctx, x.mine()) // leftBehind has reported what cannot be removed
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

// reachable measures round trips.
func (x *exam) reachable(ctx context.Context) []finding {
	var took []time.Duration
	for range 7 {
		begun := time.Now()
		if err := x.d.client.Ping(ctx, readpref.Primary()); err != nil {
			return fail("check the network", "a ping was not answered: %s", reason(err))
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	middle, most := took[len(took)/2], took[len(took)-1]
	text := fmt.Sprintf("a round trip takes %s, at most %s of 7", span(middle), span(most))
	if most > x.c.margin()/2 {
		return warn("use a longer TTL, or a nearer primary", "%s: over half the margin of %v", text, x.c.margin())
	}
	return fine("%s", text)
}

// topology reports what the deployment is.
func (x *exam) topology(ctx context.Context) []finding {
	facts, err := traps.Check(ctx, x.d.client)
	if err != nil {
		return fail("", "the server does not say what it is: %s", reason(err))
	}
	x.facts = facts
	x.facts.Hosts = append(x.facts.Hosts, x.d.uri.Hosts...)
	x.hello, _ = x.d.client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw() // the check clocks works without it
	name := "MongoDB"
	if facts.Product != "" {
		name = facts.Product + ", as MongoDB"
	}
	version := facts.Version.String()
	if facts.Version == (traps.Version{}) {
		version = "of an unknown version"
	}
	switch {
	case facts.Router:
		return fine("%s %s, through a router", name, version)
	case facts.Standalone:
		return warn("for production use a replica set", "%s %s, standalone", name, version)
	case facts.Voting == 1:
		return fine("%s %s, a set of one member: writes are durable, but there is no failover", name, version)
	}
	return fine("%s %s, a set of %d voting members with data, %d arbiters", name, version, facts.Voting, facts.Arbiters)
}

// traps reports what is known to go wrong on this deployment.
func (x *exam) traps(context.Context) []finding {
	var all []finding
	for _, t := range x.facts.Traps() {
		if t.Name == "standalone" {
			continue // the check topology has reported it
		}
		f := finding{"trap", warning, t.Name + ": " + t.Says + ": " + t.Why, t.Do}
		if t.Grave {
			f.Level = failure
		}
		all = append(all, f)
	}
	if all == nil {
		return fine("none of the known ones")
	}
	return all
}

// A tick is the reading of a member's clock, as the time by which it is ahead of this host's.
// That is known between two bounds, because the reply took a while.
type tick struct {
	host        string
	least, most time.Duration
	err         error
}

// clocks compares the clocks of all members. It asks each directly, without a user, because
// hello needs none. Through a router it can ask only the router's own.
func (x *exam) clocks(ctx context.Context) []finding {
	var members struct{ Hosts, Passives, Arbiters []string }
	_ = bson.Unmarshal(x.hello, &members) // none, if the server does not say
	hosts := slices.Concat(members.Hosts, members.Passives, members.Arbiters)
	if len(hosts) == 0 {
		hosts = x.d.uri.Hosts[:min(1, len(x.d.uri.Hosts))]
	}
	ticks := make(chan tick, len(hosts))
	for _, host := range hosts {
		go func() { ticks <- x.clockOf(ctx, host) }() // ends with ctx
	}
	var heard []tick
	var all []finding
	for range hosts {
		t := <-ticks
		if t.err != nil {
			all = append(all, warn("a member that cannot be reached from here cannot be judged: run doctor where it can", "%s does not tell its clock: %s", t.host, reason(t.err))...)
			continue
		}
		heard = append(heard, t)
	}
	if len(heard) == 0 {
		return all
	}
	slices.SortFunc(heard, func(a, b tick) int { return strings.Compare(a.host, b.host) })
	return append(all, x.spread(heard)...)
}

// clockOf asks a member five times and keeps the interval that all answers allow.
func (x *exam) clockOf(ctx context.Context, host string) tick {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	direct := *x.d.opts
	direct.Auth, direct.ReplicaSet = nil, nil
	direct.SetHosts([]string{host}).SetDirect(true).SetServerSelectionTimeout(3 * time.Second)
	direct.SetReadPreference(readpref.Nearest())
	client, err := mongo.Connect(&direct)
	if err != nil {
		return tick{host: host, err: err}
	}
	defer (&deployment{client: client}).close()
	t := tick{host: host, least: -1 << 62, most: 1 << 62}
	for range 5 {
		sent := time.Now()
		var reply struct{ LocalTime *bson.DateTime }
		err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}, options.RunCmd().SetReadPreference(readpref.Nearest())).Decode(&reply)
		got := time.Now()
		if err == nil && reply.LocalTime == nil {
			err = errors.New("the server does not tell its time")
		}
		if err != nil {
			return tick{host: host, err: err}
		}
		at := reply.LocalTime.Time() // cut to the millisecond
		t.least = max(t.least, at.Sub(got))
		t.most = min(t.most, at.Add(time.Millisecond).Sub(sent))
	}
	return t
}

// spread judges the clocks. It compares the difference that is certain with the margin.
func (x *exam) spread(heard []tick) []finding {
	if x.facts.Router {
		return warn("run doctor with the address of each shard's members too, the config servers' included",
			"a router hides the members of the shards: their clocks are not seen, and after an election two that are over a minute apart may let two hold one key")
	}
	if len(heard) == 1 {
		t := heard[0]
		return fine("one clock (%s), to ±%s: there is no other to differ from", t.host, span((t.most-t.least)/2))
	}
	middle := func(a, b tick) int { return cmp.Compare(a.least+a.most, b.least+b.most) }
	behind, ahead := slices.MinFunc(heard, middle), slices.MaxFunc(heard, middle)
	wide := slices.MaxFunc(heard, func(a, b tick) int { return cmp.Compare(a.most-a.least, b.most-b.least) })
	unsure := (wide.most - wide.least) / 2
	apart := (ahead.least + ahead.most - behind.least - behind.most) / 2
	certain := max(0, ahead.least-behind.most)
	text := fmt.Sprintf("%d members are %s apart (±%s)", len(heard), span(apart), span(unsure))
	if certain > 0 {
		text += fmt.Sprintf(": %s is ahead of %s", ahead.host, behind.host)
	}
	const far = time.Minute // docs/guarantees.md
	margin := x.c.margin()
	do := "let NTP set the clocks of all members"
	switch {
	case certain > far:
		return fail(do, "%s, over a minute: after an election two may hold one key", text)
	case certain > margin:
		return warn(do, "%s, over the margin of %v: after an election a key may stay taken for that much longer", text, margin)
	}
	return fine("%s, within the margin of %v", text, margin)
}
