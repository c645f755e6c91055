package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock/internal/mongo/server"
	"github.com/mongolock/mongolock/schedule"
)

// lastDue returns the last time up to now at which a cron expression is due, or the zero time. The
// same time comes out on every host, whatever its clock says, as long as clocks differ by less
// than the time between two: it names the run, and decides nothing else.
func lastDue(expression string, now time.Time) time.Time {
	if zone := hostZone(); zone != "" && !strings.Contains(expression, "TZ=") {
		expression = "CRON_TZ=" + zone + " " + expression
	}
	const longest = 30 * 366 * 24 * time.Hour // a 29th of February on a Sunday comes every 28 years
	plan := schedule.Cron(expression)
	now = now.Add(time.Second) // cron may have woken by a clock that was set back a little meanwhile
	for back := time.Minute; back < longest; back *= 2 {
		due := plan.Next(now.Add(-back))
		if due.IsZero() || due.After(now) {
			continue
		}
		for next := due; !next.IsZero() && !next.After(now); next = plan.Next(due) {
			due = next
		}
		return due
	}
	return time.Time{}
}

// hostZone returns the name of this host's time zone, by which cron reads a crontab, or nothing if
// it has none: that is UTC.
func hostZone() string {
	name, set := os.LookupEnv("TZ")
	if name = cmp.Or(strings.TrimPrefix(name, ":"), "UTC"); !set {
		name = "/etc/localtime"
	}
	if filepath.IsAbs(name) {
		link, _ := filepath.EvalSymlinks(name)
		_, name, _ = strings.Cut(link, "zoneinfo/")
	}
	if _, err := time.LoadLocation(name); err != nil || name == "Local" {
		return ""
	}
	return name
}

// hasNamelessZone reports whether this host has a time zone other than UTC whose name cannot be found.
func hasNamelessZone() bool {
	now := time.Now()
	_, winter := now.Zone()
	_, summer := now.AddDate(0, 6, 0).Zone()
	return hostZone() == "" && (os.Getenv("TZ") != "" || winter != 0 || summer != 0)
}

// A due is a document of the collection of claims.
type due struct {
	Key     string    `bson:"_id"`
	At      time.Time `bson:"at"`
	Claim   string    `bson:"claim"`
	Owner   string    `bson:"owner"`
	Claimed time.Time `bson:"claimed"` // by the claimer's clock; for people
}

// claimDue claims a due time of a key, and returns the claim that stands: this one, if its Claim is
// id. A reply that was lost leaves a claim behind, which is found by its id. An error comes with this
// claim if it may have been applied.
func claimDue(ctx context.Context, coll *mongo.Collection, key, id, owner string, at time.Time) (due, error) {
	coll = coll.Clone(options.Collection().SetWriteConcern(writeconcern.Majority()).SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()))
	claim := due{Key: key, At: at.UTC(), Claim: id, Owner: owner, Claimed: time.Now().UTC()}
	_, failed := coll.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: key}, {Key: "at", Value: bson.D{{Key: "$lt", Value: claim.At}}}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "at", Value: claim.At}, {Key: "claim", Value: id}, {Key: "owner", Value: owner}, {Key: "claimed", Value: claim.Claimed}}}},
		options.UpdateOne().SetUpsert(true))
	if failed == nil {
		return claim, nil
	}
	var stands due
	if err := coll.FindOne(ctx, bson.D{{Key: "_id", Value: key}}).Decode(&stands); err == nil && !stands.At.Before(claim.At) {
		return stands, nil // this claim, or one that was sooner
	}
	if server.ClassOf(failed).Sent() {
		return claim, failed
	}
	return due{}, failed
}

// giveBackDue gives back the due time of a claim whose command was not run, so that it can be claimed
// again. What was decided before it stays so. errNotClaimed says that the claim is not there.
func giveBackDue(ctx context.Context, coll *mongo.Collection, claim due) error {
	coll = coll.Clone(options.Collection().SetWriteConcern(writeconcern.Majority()))
	found, err := coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: claim.Key}, {Key: "claim", Value: claim.Claim}, {Key: "at", Value: claim.At}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "at", Value: claim.At.Add(-time.Millisecond)}}}})
	if err == nil && found.MatchedCount == 0 {
		return errNotClaimed
	}
	return err
}

// errNotClaimed leaves open whether a claim that was not answered is applied later.
var errNotClaimed = errors.New("the claim is not there: another has taken its place, or it may still be applied")

const claimFor = 15 * time.Second // bounds a claim of a due time, and its return

// dues is the collection of claims beside that of the locks.
func dues(locks *mongo.Collection) *mongo.Collection {
	return locks.Database().Collection(locks.Name() + ".due")
}

// claim claims the due time of --at, and returns the claim if the command is this host's to run. If it is
// not, err is how this program ends.
func (c *runCmd) claim(a *app, locks *mongo.Collection) (mine *due, err error) {
	at := lastDue(c.At, time.Now())
	ctx, cancel := context.WithTimeout(a.ctx, claimFor)
	defer cancel()
	id := rand.Text()
	stands, err := claimDue(ctx, dues(locks), c.Key, id, string(a.owner("")), at)
	if err != nil {
		if stands.Claim == id {
			c.giveBack(a, locks, &stands)
		}
		return nil, fmt.Errorf("claiming the due time %s: %w", at.Format(time.RFC3339), err)
	}
	a.teller(c.Key).tell("due", "", map[string]any{"due": stands.At, "by": stands.Owner, "mine": stands.Claim == id})
	switch {
	case stands.Claim == id:
		return &stands, nil
	case c.Held != nil:
		return nil, exitf(*c.Held, "")
	}
	return nil, nil
}

// giveBack gives a claim back, because the key was not granted, the command not started, or the claim not answered.
func (c *runCmd) giveBack(a *app, locks *mongo.Collection, mine *due) {
	if mine == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), claimFor)
	defer cancel()
	event, text := "returned", ""
	if err := giveBackDue(ctx, dues(locks), *mine); err != nil {
		event, text = "unreturned", fmt.Sprintf("the due time %s may not be given back; then it does not run: %s", mine.At.Format(time.RFC3339), sentence(err))
	}
	a.teller(c.Key).tell(event, text, map[string]any{"due": mine.At})
}
