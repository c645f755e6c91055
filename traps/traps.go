// Package traps tells what is known to go wrong with locks on a deployment of MongoDB: a server or
// a configuration that forgets grants, or makes faults cost more. [Check] asks the deployment:
//
//	d, err := traps.Check(ctx, client)
//	for _, t := range d.Traps() {
//		slog.Warn(t.Says, "trap", t.Name, "why", t.Why, "do", t.Do)
//	}
//
// `mongolock doctor` reports the same. No other package of the library asks: locks are taken on a
// server with traps as on any other.
package traps

import (
	"fmt"
	"slices"
	"strings"
)

// A Trap is something that is known to go wrong.
type Trap struct {
	Name  string // short and stable, for logs and scripts
	Says  string // what is the case
	Why   string // what goes wrong then
	Do    string // what to do about it
	Grave bool   // locks cannot be trusted: two holders, or a grant that is forgotten
}

// A Version is the version that a server tells.
type Version [3]int

// Before reports whether v is an older version than the one of these parts.
func (v Version) Before(parts ...int) bool {
	return slices.Compare(v[:min(len(parts), len(v))], parts) < 0
}

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// A Deployment is what is known of one. A field that is not known has its zero value, and sets no
// trap.
type Deployment struct {
	Version    Version
	Product    string   // "FerretDB", or another name that a server gives in place of MongoDB's
	Hosts      []string // the members' addresses, by which some services are known
	Standalone bool
	Router     bool
	NoHello    bool   // the server has isMaster only
	NoSessions bool   // the server has no logical sessions
	NoRetries  bool   // the client's options turn retryable writes off
	NoJournal  bool   // the server keeps no journal
	Engine     string // the storage engine

	Voting   int // members of the set that vote and keep data
	Arbiters int

	MajorityInMemory bool // the set's writeConcernMajorityJournalDefault is false
	NoMajorityReads  bool // the server refuses the read concern majority
}

// Traps returns the known traps of the deployment, the grave ones first.
func (d Deployment) Traps() []Trap {
	var all []Trap
	for _, t := range list {
		if t.is(d) {
			all = append(all, t.Trap)
		}
	}
	return all
}

func (d Deployment) mongodb() bool { return d.Version != Version{} && d.Product == "" }

func (d Deployment) on(domain string) bool {
	return slices.ContainsFunc(d.Hosts, func(host string) bool {
		name, _, _ := strings.Cut(strings.ToLower(host), ":")
		return strings.HasSuffix(name, domain)
	})
}

var list = []struct {
	Trap
	is func(Deployment) bool
}{
	{
		Trap{
			Name: "old-server", Grave: true,
			Says: "the server is older than MongoDB 4.4",
			Why:  "the library's commands are not all there, and none of its arguments was made for it",
			Do:   "use MongoDB 4.4 or later",
		},
		func(d Deployment) bool { return d.mongodb() && d.Version.Before(4, 4) },
	},
	{
		Trap{
			Name: "standalone-8.0", Grave: true,
			Says: "a standalone mongod 8.0",
			Why:  "it has been reported to lose acknowledged findAndModify writes when it is killed (jira SERVER-139311): a grant can be forgotten, and given again",
			Do:   "run it as a replica set, of one member if need be",
		},
		func(d Deployment) bool {
			return d.mongodb() && d.Standalone && !d.Version.Before(8, 0) && d.Version.Before(8, 1)
		},
	},
	{
		Trap{
			Name: "memory-engine", Grave: true,
			Says: "the storage engine keeps its data in memory",
			Why:  "a restart of the members forgets all grants, and their holders go on",
			Do:   "use WiredTiger",
		},
		func(d Deployment) bool { return d.Engine == "inMemory" || d.Engine == "ephemeralForTest" },
	},
	{
		Trap{
			Name: "no-journal", Grave: true,
			Says: "the server keeps no journal",
			Why:  "after a crash it has forgotten its last writes: a grant can be forgotten, and given again",
			Do:   "start mongod with its journal, or run a replica set",
		},
		func(d Deployment) bool { return d.NoJournal },
	},
	{
		Trap{
			Name: "documentdb", Grave: true,
			Says: "Amazon DocumentDB",
			Why:  "by its documentation it has no capped collections, and retryable writes only from 8.0.2, and nobody has shown that the filters of two concurrent updates are atomic there",
			Do:   "use MongoDB; with DocumentDB waiters poll, and what is promised is not known",
		},
		func(d Deployment) bool { return d.on(".docdb.amazonaws.com") },
	},
	{
		Trap{
			Name: "cosmosdb", Grave: true,
			Says: "Azure Cosmos DB for MongoDB",
			Why:  "with several write regions the last writer wins, which makes two holders",
			Do:   "use MongoDB",
		},
		func(d Deployment) bool { return d.on(".cosmos.azure.com") },
	},
	{
		Trap{
			Name: "ferretdb", Grave: true,
			Says: "FerretDB",
			Why:  "version 1 looks first and updates afterwards: of eight takeovers of one lock at once several won in 199 of 200 rounds. Only behind a gate that passes one command at a time (devmongo has one) is that not so",
			Do:   "use it for development, behind the gate",
		},
		func(d Deployment) bool { return d.Product == "FerretDB" },
	},
	{
		Trap{
			Name: "majority-in-memory", Grave: true,
			Says: "writeConcernMajorityJournalDefault is false",
			Why:  "what a majority acknowledged may be in no journal: if the members lose power together, grants are forgotten. The library asks for the journal of the primary alone",
			Do:   "set it to true in the set's configuration",
		},
		func(d Deployment) bool { return d.MajorityInMemory },
	},
	{
		Trap{
			Name: "arbiter",
			Says: "an arbiter, and two members that keep data",
			Why:  "when one of the two is down, no write can be acknowledged by a majority that keeps it: leases are lost though a primary is up",
			Do:   "put a third member with data in the arbiter's place",
		},
		func(d Deployment) bool { return d.Arbiters > 0 && d.Voting == 2 },
	},
	{
		Trap{
			Name: "no-majority-reads",
			Says: "enableMajorityReadConcern is false",
			Why:  "reads of what a majority has are refused: path locks fail, and a bulk of renewals that is not answered counts as failed for all its leases",
			Do:   "set it to true, its default; since MongoDB 5.0 it is always true",
		},
		func(d Deployment) bool { return d.NoMajorityReads && d.member() },
	},
	{
		Trap{
			Name: "no-hello",
			Says: "the server has no hello (4.4.0 and 4.4.1)",
			Why:  "the library asks by isMaster instead: one command more each time",
			Do:   "update to a later 4.4",
		},
		func(d Deployment) bool { return d.NoHello },
	},
	{
		Trap{
			Name: "no-retries",
			Says: "retryable writes are off (retryWrites=false)",
			Why:  "a late copy of a claim is not refused by its number, so clean-ups are repeated for as long as the TTL lasts, and the key may stay taken that long after a fault",
			Do:   "leave retryWrites=false out of the connection string",
		},
		func(d Deployment) bool { return d.NoRetries && !d.Standalone },
	},
	{
		Trap{
			Name: "no-sessions",
			Says: "the server has no sessions",
			Why:  "a late copy of a claim is not refused by its number, so clean-ups are repeated for as long as the TTL lasts",
			Do:   "for production use a replica set of MongoDB",
		},
		func(d Deployment) bool { return d.NoSessions && !d.Standalone },
	},
	{
		Trap{
			Name: "standalone",
			Says: "a standalone server",
			Why:  "no retryable writes and no operationTime: clean-ups are repeated, and a grant takes one command more. If it is down there is no other",
			Do:   "for production use a replica set",
		},
		func(d Deployment) bool { return d.Standalone },
	},
}
