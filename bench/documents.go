package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/doclock"
)

const (
	pendingMessages = 100_000
	dueAtOnce       = 100
	claimTurns      = 8
	allDueTurns     = 2
	allDueBare      = 3 // few, because each is slow
	drainWorkers    = 8
	updateTurns     = 360
)

// A message is one of many documents that can be claimed.
type message struct {
	ID    int    `bson:"_id"`
	State string `bson:"state"`
	Due   int    `bson:"due"`
	Text  string `bson:"text"`
}

var (
	isPending = bson.D{{Key: "state", Value: "pending"}}
	firstDue  = bson.D{{Key: "due", Value: 1}}
)

// documentClaims measures what it costs to claim one document of many.
func documentClaims(l *lab) []figure {
	return append(claimOfMany(l), drainQueue(l, 1, 10_000), drainQueue(l, drainWorkers, 5_000))
}

func fillQueue(l *lab, coll *mongo.Collection, n int) {
	for from := 0; from < n; from += 10_000 {
		var docs []any
		for i := from; i < min(n, from+10_000); i++ {
			docs = append(docs, message{i, "pending", i, "somebody should be told that something has happened"})
		}
		must(coll.InsertMany(l.ctx, docs))
	}
}

// locksIn returns the locks of a collection's documents. They are closed at the end; what is left
// then runs out.
func locksIn[T any](l *lab, coll *mongo.Collection) *doclock.Locks[T] {
	locks := must(doclock.New[T](coll, doclock.WithLogger(silent)))
	l.atEnd(func() error { _ = locks.Close(); return nil })
	return locks
}

// due returns a filter for the pending documents whose due time is in this range.
func due(from, to int) bson.D {
	return append(slices.Clone(isPending), bson.E{Key: "due", Value: bson.D{{Key: "$gte", Value: from}, {Key: "$lt", Value: to}}})
}

// claimOfMany lets claims and bare commands by hand take turns, each on 100,000 pending documents
// of its own, with the index that serves it best. It compares means, because one claim in some
// pays for the look ahead of all. Medians leave the look ahead out and show the cost of a claim
// itself.
func claimOfMany(l *lab) []figure {
	db := l.driver.Database("bench_claims")
	ours, theirs := db.Collection("ours"), handOn(db.Collection("theirs")).durable
	fillQueue(l, ours, pendingMessages)
	fillQueue(l, theirs, pendingMessages)
	locks := locksIn[message](l, ours)
	check(locks.EnsureClaimIndex(l.ctx, isPending, firstDue))
	must(theirs.Indexes().CreateOne(l.ctx, mongo.IndexModel{Keys: bson.D{{Key: "state", Value: 1}, {Key: "due", Value: 1}}}))

	// claim returns how long each of some claims took. They are completed afterwards, untimed.
	claim := func(filter bson.D) []float64 {
		var claimed []*doclock.Claimed[message]
		took := raceOf(0, dueAtOnce, timed(func() { claimed = append(claimed, must(locks.TryClaim(l.ctx, filter, firstDue))) }))[0]
		for _, one := range claimed {
			check(one.Complete(l.ctx))
		}
		return took
	}
	taken := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "taken"}}}}
	take := func(n int, filter func() bson.D, opts *options.FindOneAndUpdateOptionsBuilder) []float64 {
		return raceOf(0, n, timed(func() {
			check(theirs.FindOneAndUpdate(l.ctx, filter(), taken, opts.SetReturnDocument(options.After)).Err())
		}))[0]
	}
	sorted := func() *options.FindOneAndUpdateOptionsBuilder { return options.FindOneAndUpdate().SetSort(firstDue) }

	// Of a queue a few documents are due: every server finds those by the index.
	var claims, bare, byID []float64
	last := pendingMessages // no document before it was claimed by its _id
	for turn := range claimTurns + 1 {
		filter := due(turn*dueAtOnce, (turn+1)*dueAtOnce)
		c, b := claim(filter), take(dueAtOnce, func() bson.D { return filter }, sorted())
		i := take(dueAtOnce, func() bson.D { last--; return bson.D{{Key: "_id", Value: last}, isPending[0]} }, options.FindOneAndUpdate())
		if turn > 0 { // the first turn warms up
			claims, bare, byID = append(claims, c...), append(bare, b...), append(byID, i...)
		}
	}
	// All of them are due: how much a bare command reads depends on the server, so explain is asked as well.
	var all, first, anyOne []float64
	pending := func() bson.D { return isPending }
	for range allDueTurns {
		all = append(all, claim(isPending)...)
		first = append(first, take(allDueBare, pending, sorted())...)
		anyOne = append(anyOne, take(allDueBare, pending, options.FindOneAndUpdate())...)
	}
	reply := must(db.RunCommand(l.ctx, bson.D{
		{Key: "explain", Value: bson.D{
			{Key: "findAndModify", Value: theirs.Name()}, {Key: "query", Value: isPending}, {Key: "sort", Value: firstDue}, {Key: "update", Value: taken},
		}},
		{Key: "verbosity", Value: "executionStats"},
	}).Raw())
	examined := "not what it reads"
	if n, ok := reply.Lookup("executionStats", "totalDocsExamined").AsInt64OK(); ok {
		examined = fmt.Sprintf("documents read: %d", n)
	}
	return []figure{
		{"claim of one of 100,000, of which 100 are due", mean(claims) / mean(bare), "%.2f ×", 1.3, atMost,
			"a bare findOneAndUpdate with the same filter and sort"},
		{"the same, without its part of a look ahead", median(claims) / median(byID), "%.2f ×", 0, noTarget, "a bare findOneAndUpdate by `_id`"},
		{"claim of one of 100,000, all due", mean(all) / mean(first), "%.3f ×", 1.3, atMost, fmt.Sprintf(
			"a bare findOneAndUpdate with the same filter and sort; %.0f ms here, though its explain says %s", 1000*mean(first), examined)},
		{"the same", mean(all) / mean(anyOne), "%.3f ×", 0, noTarget, fmt.Sprintf("a bare one without the sort: %.0f ms here", 1000*mean(anyOne))},
	}
}

func mean(xs []float64) (sum float64) {
	for _, x := range xs {
		sum += x / float64(len(xs))
	}
	return sum
}

// drainQueue lets eight workers claim and complete n messages until none is left, and counts the
// commands that are sent for the claims. In one process the workers share a look ahead; in eight
// processes they do not know of each other.
func drainQueue(l *lab, processes, n int) figure {
	var sent, completed atomic.Int64
	name := fmt.Sprint("outbox_", processes)
	fillQueue(l, l.driver.Database("bench_drain").Collection(name), n)
	var all []*doclock.Locks[message]
	for range processes {
		all = append(all, locksIn[message](l, l.connect(&sent).Database("bench_drain").Collection(name)))
	}
	check(all[0].EnsureClaimIndex(l.ctx, isPending, firstDue))
	sent.Store(0)
	sideBySide(drainWorkers, func(i int) {
		for {
			c, err := all[i%len(all)].TryClaim(l.ctx, isPending, firstDue)
			if errors.Is(err, doclock.ErrNoWork) {
				return
			}
			check(err)
			c.Value.State = "sent"
			check(c.Complete(l.ctx))
			completed.Add(1)
		}
	})
	if completed.Load() != int64(n) {
		check(fmt.Errorf("%d of %d messages were completed", completed.Load(), n))
	}
	perClaim := float64(sent.Load()-completed.Load()) / float64(completed.Load()) // without one command for each completion
	return figure{"commands for a claim", perClaim, "%.3f", 1.3, atMost,
		fmt.Sprintf("%d workers of %d process(es) drain %d,000 messages", drainWorkers, processes, n/1000)}
}

// An account is a document that is changed.
type account struct {
	ID      string `bson:"_id"`
	Balance int    `bson:"balance"`
	Version int    `bson:"version,omitempty"`
}

// documentUpdates measures what a change of one document costs under doclock's Update, beside
// a lock that waits for a majority itself, and a compare-and-swap on a version by hand, which
// excludes no other and has to begin again when it meets another.
func documentUpdates(l *lab) []figure {
	coll := l.driver.Database("bench_updates").Collection("accounts")
	for i := range 2 {
		must(coll.InsertOne(l.ctx, account{ID: strconv.Itoa(i)}))
	}
	locks, hand := locksIn[account](l, coll), handOn(coll)
	turns := raceOf(updateTurns/9, updateTurns,
		timed(func() {
			check(locks.Update(l.ctx, doclock.ID("0"), func(a *account) error { a.Balance++; return nil }))
		}),
		timed(func() {
			doc := must(locks.Acquire(l.ctx, doclock.ID("0")))
			doc.Value.Balance++
			check(doc.SaveAndRelease(l.ctx))
		}),
		timed(func() { swap(l, hand, "1") }))
	return []figure{
		{"change of a document, `Update`", turns.ratio(1), "%.2f ×", 0, noTarget, fmt.Sprintf("`Acquire`, then `SaveAndRelease`; %.2f ms", 1000*turns.median(0))},
		{"the same", turns.ratio(2), "%.2f ×", 0, noTarget, "a find and a compare-and-swap on a version by hand, met by nobody"},
	}
}

// swap adds one to an account as one would without a lock.
func swap(l *lab, h byHand, id string) {
	var a account
	check(h.soft.FindOne(l.ctx, bson.D{{Key: "_id", Value: id}}).Decode(&a))
	seen := bson.D{{Key: "_id", Value: id}, {Key: "version", Value: a.Version}}
	if a.Version == 0 {
		seen[1].Value = bson.D{{Key: "$exists", Value: false}}
	}
	check(h.durable.FindOneAndUpdate(l.ctx, seen, bson.D{{Key: "$set", Value: bson.D{
		{Key: "balance", Value: a.Balance + 1}, {Key: "version", Value: a.Version + 1},
	}}}, options.FindOneAndUpdate().SetReturnDocument(options.After)).Err())
}
