package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/mongolock/mongolock/traps"
)

// reachable measures round trips.
func (x *exam) reachable(ctx context.Context) {
	const check = "reachable"
	var took []time.Duration
	for range 7 {
		begun := time.Now()
		if err := x.d.client.Ping(ctx, readpref.Primary()); err != nil {
			x.fail(check, "check the network", "a ping was not answered: %s", reason(err))
			return
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	middle, most := span(took[len(took)/2]), took[len(took)-1]
	if most > x.c.margin()/2 {
		x.warn(check, "use a longer TTL, or a nearer primary", "a round trip takes %s, at most %s of 7: over half the margin of %v", middle, span(most), x.c.margin())
		return
	}
	x.fine(check, "a round trip takes %s, at most %s of 7", middle, span(most))
}

// topology reports what the deployment is.
func (x *exam) topology(ctx context.Context) {
	const check = "topology"
	facts, err := traps.Check(ctx, x.d.client)
	if err != nil {
		x.fail(check, "", "the server does not say what it is: %s", reason(err))
		return
	}
	x.facts = facts
	x.facts.Hosts = append(x.facts.Hosts, x.d.uri.Hosts...)
	x.hello, _ = x.d.client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw() // the check clocks works without it
	version := facts.Version.String()
	if facts.Version == (traps.Version{}) {
		version = "of an unknown version"
	}
	name := strings.TrimPrefix(facts.Product+", as MongoDB ", ", as ") + version
	switch {
	case facts.Router:
		x.fine(check, "%s, through a router", name)
	case facts.Standalone:
		x.warn(check, "for production use a replica set", "%s, standalone", name)
	default:
		x.fine(check, "%s, a set of %d voting members with data, %d arbiters", name, facts.Voting, facts.Arbiters)
	}
}

// traps reports what is known to go wrong on this deployment.
func (x *exam) traps(context.Context) {
	for _, t := range x.facts.Traps() {
		switch text := t.Name + ": " + t.Says + ": " + t.Why; {
		case t.Name == "standalone": // the check topology has reported it
		case t.Grave:
			x.fail("trap", t.Do, "%s", text)
		default:
			x.warn("trap", t.Do, "%s", text)
		}
	}
	if len(x.found) == 0 {
		x.fine("traps", "none of the known ones")
	}
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
func (x *exam) clocks(ctx context.Context) {
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
	for range hosts {
		if t := <-ticks; t.err != nil {
			x.warn("clocks", "a member that cannot be reached from here cannot be judged: run doctor where it can", "%s does not tell its clock: %s", t.host, reason(t.err))
		} else {
			heard = append(heard, t)
		}
	}
	if len(heard) > 0 {
		x.spread(heard)
	}
}

// clockOf asks a member five times and keeps the interval that all answers allow.
func (x *exam) clockOf(ctx context.Context, host string) tick {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	direct := *x.d.opts
	direct.Auth, direct.ReplicaSet = nil, nil
	direct.SetHosts([]string{host}).SetDirect(true).SetServerSelectionTimeout(3 * time.Second).SetReadPreference(readpref.Nearest())
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

// spread judges the clocks by the difference that is certain.
func (x *exam) spread(heard []tick) {
	const check = "clocks"
	const do = "let NTP set the clocks of all members"
	const far = time.Minute // docs/guarantees.md
	ahead := slices.MaxFunc(heard, func(a, b tick) int { return cmp.Compare(a.least, b.least) })
	behind := slices.MinFunc(heard, func(a, b tick) int { return cmp.Compare(a.most, b.most) })
	apart, margin := max(0, ahead.least-behind.most), x.c.margin()
	switch {
	case x.facts.Router:
		x.warn(check, "run doctor with the address of each shard's members too, the config servers' included",
			"a router hides the members of the shards: their clocks are not seen, and after an election two that are over a minute apart may let two hold one key")
	case len(heard) == 1:
		x.fine(check, "one clock (%s): there is no other to differ from", ahead.host)
	case apart > far:
		x.fail(check, do, "%d members are at least %s apart, over a minute: after an election two may hold one key. %s is ahead of %s", len(heard), span(apart), ahead.host, behind.host)
	case apart > margin:
		x.warn(check, do, "%d members are at least %s apart, over the margin of %v: after an election a key may stay taken for that much longer. %s is ahead of %s", len(heard), span(apart), margin, ahead.host, behind.host)
	default:
		x.fine(check, "%d members are at least %s apart, within the margin of %v", len(heard), span(apart), margin)
	}
}
