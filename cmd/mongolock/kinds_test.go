//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/schedule"
)

// prints is what the program prints, ending well.
func (p *program) prints(args ...string) string {
	p.t.Helper()
	r := p.start(args...)
	require.Equal(p.t, 0, r.code(), "%v: %s", args, r.out)
	return r.out.String()
}

func TestAJobThatIsNotDueAgainHasNoDueTime(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, (&jobsLsCmd{}).one(&printer{w: &out}, schedule.State{Job: "once", Plan: "at noon"}, nil))
	assert.Equal(t, "once\tat noon\t\tno more\t\t\t\n", out.String())
}

func TestPartitionsShowsWhichWorkerHasWhich(t *testing.T) {
	p := newProgram(t)
	client, err := mongolock.New(p.database().Collection("locks"), mongolock.WithOwner("worker-3"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		assert.NoError(t, assign.Run(ctx, client, "orders", 8, func(ctx context.Context, _ assign.Partition) error { <-ctx.Done(); return ctx.Err() }))
	})
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	shows := func(pattern string, args ...string) {
		t.Helper()
		require.Eventually(t, func() bool { return regexp.MustCompile(pattern).MatchString(p.prints(args...)) }, pace.Of(10*time.Second), 50*time.Millisecond, "%v", args)
	}
	shows(`^orders\tworker-3\t[^\t]+\tweight 1\t8 partitions\t0-7\n$`, "partitions")
	shows(`^\{"name":"orders","owner":"worker-3","worker":"\w+","weight":1,"since":"[^"]+","partitions":\[0,1,2,3,4,5,6,7\]\}\n$`, "partitions", "orders", "--output", "json")
	p.prints("partitions", "orders", "--resize", "4")
	shows(`\t4 partitions\t0-3\n$`, "partitions", "orders")

	held, err := client.TryAcquire(t.Context(), "orders/0007") // not one of them
	require.NoError(t, err)
	shows(`\t4 partitions\t0-3\n$`, "partitions", "orders")
	require.NoError(t, held.Release())
	cancel()
	running.Wait()
	assert.Contains(t, p.prints("partitions"), "nothing in")
	assert.Equal(t, "mongolock: no worker of ordesr runs: nothing is changed\n", p.prints("partitions", "ordesr", "--resize", "8"))
}

func TestPartitionsOfOneThatDrainsThoseHeldByHandAndFreeOnesAreShown(t *testing.T) {
	t.Parallel()
	a, drains := assign.Part{Worker: "a", Owner: "host-a"}, assign.Part{Worker: "b", Owner: "host-b"}
	s := assign.State{
		Workers:    []assign.Worker{{ID: "a", Owner: "host-a", Weight: 2, Age: time.Minute}},
		Partitions: []assign.Part{a, {}, drains, a, a, {}, drains, {Owner: "ops"}},
	}
	all := sharingOf("orders", s)
	require.Len(t, all, 4)
	for i, want := range [][]string{
		{"orders", "host-a", span(time.Minute), "weight 2", "3 partitions", "0 3-4"},
		{"orders", "host-b", "", "drains", "2 partitions", "2 6"},
		{"orders", "ops", "", "held by hand", "1 partitions", "7"},
		{"orders", "no worker", "", "", "2 partitions", "1 5"},
	} {
		assert.Equal(t, want, all[i].fields())
	}
}

func TestJobsShowsDueTimesAndRuns(t *testing.T) {
	p := newProgram(t)
	jobs, err := schedule.New(p.database().Collection("jobs"), schedule.WithOwner("worker-3"))
	require.NoError(t, err)
	var once sync.Once
	began := make(chan struct{})
	require.NoError(t, jobs.Add("fails", schedule.Every(200*time.Millisecond), func(context.Context, schedule.Run) error { return errors.New("no paper") }))
	require.NoError(t, jobs.Add("runs", schedule.Every(time.Second), func(ctx context.Context, _ schedule.Run) error {
		once.Do(func() { close(began) })
		<-ctx.Done()
		return ctx.Err()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = jobs.Run(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	<-began
	require.Eventually(t, func() bool { return strings.Contains(p.prints("jobs"), "failed") }, pace.Of(10*time.Second), 50*time.Millisecond)
	text := p.prints("jobs")
	assert.Regexp(t, `(?m)^fails\t[^\t]*200ms[^\t]*\t[-0-9: ]+\tnext, `, text)
	assert.Regexp(t, `(?m)^fails\t\t[-0-9: ]+\tfailed\t[^\t]+\tworker-3\tno paper$`, text)
	assert.Regexp(t, `(?m)^runs\t\t[-0-9: ]+\trunning\t[^\t]+\tworker-3\t$`, text)
	var v schedule.State
	require.NoError(t, json.Unmarshal([]byte(p.prints("jobs", "runs", "--output", "json")), &v))
	require.Len(t, v.Runs, 1)
	assert.Empty(t, v.Runs[0].ID, "an ID is as good as the lease")
	missing := p.start("jobs", "other")
	assert.Equal(t, exitNothing, missing.code())
	assert.Contains(t, missing.out.String(), "no job other is known in "+p.database().Name()+".jobs\n")

	p.prints("jobs", "pause", "fails")
	assert.Regexp(t, `(?m)^fails\t[^\t]*200ms[^\t]*\t[-0-9: ]+\tpaused\t`, p.prints("jobs", "fails"))
	refused := p.start("jobs", "run", "fails")
	assert.NotZero(t, refused.code())
	assert.Contains(t, refused.out.String(), "the job is paused")
	p.prints("jobs", "resume", "fails")
	assert.Empty(t, p.prints("jobs", "run", "fails"))
	assert.Equal(t, exitNothing, p.start("jobs", "run", "other").code())
	assert.Contains(t, p.prints("jobs", "check", "runs", "--output", "json"), `"status":"OK"`)
	failing := p.start("jobs", "check", "fails", "other")
	assert.Equal(t, 2, failing.code())
	assert.Regexp(t, `(?m)^fails\tWARNING\tfailed at [^ ]+; it has not succeeded yet: no paper$`, failing.out.String())
	cancel()
	running.Wait()
	p.prints("jobs", "forget", "fails")
	assert.Equal(t, exitNothing, p.start("jobs", "fails").code())
	assert.Equal(t, exitNothing, p.start("jobs", "forget", "fails").code())
}

// What is left of a run that was stopped does not go on.
func TestAStoppedRunTookAsLongAsItTook(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2026, 5, 3, 2, 0, 0, 0, time.UTC)
	r := schedule.Run{Job: "j", Due: now.Add(-time.Hour), Attempt: 1, Owner: "one", Began: now.Add(-time.Hour), Ended: now.Add(-time.Hour + 600*time.Millisecond), Outcome: schedule.Stopped, ExpireAt: time.UnixMilli(0), Again: now.Add(time.Minute)}
	s := schedule.State{Job: "j", Plan: "p", Now: now, Runs: []schedule.Run{r}}
	require.NoError(t, (&jobsLsCmd{}).one(&printer{w: &out}, s, nil))
	assert.Contains(t, out.String(), "\tstopped, to be repeated in 1m\t600ms\tone\t")
	out.Reset()
	require.NoError(t, (&jobsLsCmd{}).one(&printer{w: &out, asJSON: true}, s, nil))
	assert.Contains(t, out.String(), `"ended":"2026-05-03T01:00:00.6Z"`)
	assert.NotContains(t, out.String(), "1970")
}

func TestPathsListsATree(t *testing.T) {
	p := newProgram(t)
	storage, err := pathlock.OnMongo(p.database().Collection("locks"))
	require.NoError(t, err)
	tree, err := pathlock.New(storage, "files")
	require.NoError(t, err)
	t.Cleanup(func() { _ = tree.Close() })
	lock, err := tree.Lock(t.Context(), pathlock.Request{Path: "/a/b", Depth: pathlock.Infinity, Owner: []byte("Ada")})
	require.NoError(t, err)
	assert.Regexp(t, `^/a/b\texclusive\tinfinity\t\S+ left\tAda\n$`, p.prints("paths", "ls"))
	text := p.prints("paths", "ls", "--output", "json")
	assert.Contains(t, text, `"path":"/a/b"`)
	assert.NotContains(t, text, lock.Token)
	assert.Contains(t, p.prints("paths", "ls", "a/b/c"), "/a/b\t")
	assert.Equal(t, "mongolock: nothing is locked in the tree others\n", p.prints("paths", "ls", "--tree", "others"))
	assert.Equal(t, "mongolock: nothing is locked in the tree files\n", p.prints("paths", "ls", "c"))
}

func TestHowLongAPathIsHeldGoesByTheClockOfItsStorage(t *testing.T) {
	ahead := time.Now().Add(time.Hour)
	assert.Equal(t, 40*time.Second, heldFor(pathlock.Lock{Since: ahead, ExpireAt: ahead.Add(time.Minute), Left: 20 * time.Second}))
	assert.InDelta(t, time.Minute, heldFor(pathlock.Lock{Since: time.Now().Add(-time.Minute), Left: pathlock.Infinite}), float64(10*time.Second))
}

func TestAListThatFindsNothingSaysWhere(t *testing.T) {
	p := newProgram(t)
	p.prints("once", "seed", "--", "true")
	db := p.database().Name()
	require.NoError(t, p.database().CreateCollection(t.Context(), "locks"))
	nothing, noCollection := "mongolock: nothing in "+db+".locks\n", " (--db and --collection name another)\n"
	lists := [][]string{{"ls"}, {"partitions"}, {"jobs"}, {"once-ls"}, {"documents", "lokcs"}, {"documents", "--dead", "lokcs"}, {"paths", "ls"}}
	for _, list := range lists {
		assert.Equal(t, "mongolock: there is no database nosuch (--db names another)\n", p.prints(append(list, "--db", "nosuch")...), "%v", list)
		assert.Equal(t, "mongolock: there is no collection "+db+".lokcs"+noCollection, p.prints(append(list, "--collection", "lokcs")...), "%v", list)
	}
	assert.Equal(t, nothing, p.prints("ls"))
	assert.Contains(t, p.prints("show", "nightly", "--collection", "lokcs"), "there is no collection "+db+".lokcs"+noCollection)
	assert.NotContains(t, p.prints("show", "nightly"), "mongolock: ")
}

func TestDocsListsLockedDocuments(t *testing.T) {
	p := newProgram(t)
	coll := p.database().Collection("orders")
	_, err := coll.InsertMany(t.Context(), []any{bson.D{{Key: "_id", Value: "order-17"}}, bson.D{{Key: "_id", Value: 18}}})
	require.NoError(t, err)
	orders, err := doclock.New[bson.M](coll, doclock.WithOwner("billing-7"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = orders.Close() })
	_, err = orders.Acquire(t.Context(), doclock.ID("order-17"), mongolock.Note("charging"))
	require.NoError(t, err)
	text := p.prints("documents", "orders")
	assert.Contains(t, text, "order-17")
	assert.Contains(t, text, "\tbilling-7\t")
	assert.Equal(t, 1, strings.Count(text, "\n"), "%s", text)
	var v struct {
		ID      any `json:"_id"`
		Holders []holderView
	}
	require.NoError(t, json.Unmarshal([]byte(p.prints("documents", "orders", "--output", "json")), &v))
	assert.Equal(t, "order-17", v.ID)
	require.Len(t, v.Holders, 1)
	assert.Equal(t, "charging", v.Holders[0].Note)
}

func TestDocumentsListsThoseThatWereSetAside(t *testing.T) {
	p := newProgram(t)
	coll := p.database().Collection("orders")
	_, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "order-17"}})
	require.NoError(t, err)
	orders, err := doclock.New[bson.M](coll, doclock.MaxAttempts(1))
	require.NoError(t, err)
	t.Cleanup(func() { _ = orders.Close() })
	doc, err := orders.TryClaim(t.Context(), bson.D{}, nil)
	require.NoError(t, err)
	require.NoError(t, doc.Release())
	assert.Contains(t, p.prints("documents", "orders", "--dead"), "nothing in", "it is not dead yet")
	_, err = orders.TryClaim(t.Context(), bson.D{}, nil)
	require.Error(t, err, "it was claimed too often")
	assert.Regexp(t, `^"order-17"\t\d\t[-0-9]+T[:0-9]+Z\n$`, p.prints("documents", "orders", "--dead"))
	assert.Regexp(t, `^\{"_id":"order-17","attempts":\d,"at":"`, p.prints("documents", "orders", "--dead", "--output", "json"))

	_, err = coll.InsertMany(t.Context(), []any{
		bson.D{{Key: "_id", Value: 1}, {Key: "came", Value: time.Now().Add(-time.Hour)}}, bson.D{{Key: "_id", Value: 2}, {Key: "came", Value: time.Now()}},
		bson.D{{Key: "_id", Value: 3}, {Key: "came", Value: time.Now().Add(-49 * time.Hour)}},
	})
	require.NoError(t, err)
	_, err = orders.Acquire(t.Context(), doclock.ID(1))
	require.NoError(t, err)
	assert.Equal(t, "2\t2d1h\t1\t1\n", p.prints("documents", "orders", "--backlog", "--came", "came"))
	assert.Equal(t, "1\t\t0\t0\n", p.prints("documents", "orders", "--backlog", "--filter", `{"_id":3}`))
	assert.Regexp(t, `^\{"claimable":2,"claimed":1,"dead":1,"oldest":"[^"]+","ageSeconds":1764\d\d[.\d]*,"now":"[^"]+"\}\n$`, p.prints("documents", "orders", "--backlog", "--came", "came", "--output", "json"))
	assert.Equal(t, "mongolock: "+coll.Database().Name()+"."+coll.Name()+" has no such document\n0\t\t0\t0\n", p.prints("documents", "orders", "--backlog", "--filter", `{"_id":0}`))
	undated := p.start("documents", "orders", "--backlog", "--came", "cmae")
	assert.Equal(t, exitFailed, undated.code())
	assert.Contains(t, undated.out.String(), "2\t\t1\t1\n")
	assert.Contains(t, undated.out.String(), "cmae of that with _id ")
}

// A name that could steer the terminal is shown quoted.
func TestTextsOfOthersAreShownWithoutControlCharacters(t *testing.T) {
	p := newProgram(t)
	client, err := mongolock.New(p.database().Collection("locks"), mongolock.WithOwner("a\x1b[2Jb"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	_, err = client.TryAcquire(t.Context(), "k\n2", mongolock.Note("x\ty"))
	require.NoError(t, err)
	text := p.prints("ls")
	assert.Contains(t, text, `"k\n2"`)
	assert.Contains(t, text, `"a\x1b[2Jb"`)
	assert.NotContains(t, text, "\x1b")
	assert.Equal(t, 1, strings.Count(text, "\n"))
}

func TestAStrangersDocumentIsNamed(t *testing.T) {
	p := newProgram(t)
	_, err := p.database().Collection("locks").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "k"}})
	require.NoError(t, err)
	for _, args := range [][]string{{"show", "k"}, {"run", "k", "--", "true"}, {"break", "k", "--reason", "x", "--yes"}} {
		r := p.start(args...)
		assert.Equal(t, exitForeign, r.code(), "%v", args)
		assert.Contains(t, r.out.String(), "not a lock of this library", "%v", args)
	}
}

// After an election a date in a document is another machine's: the holder counts until the
// server is sure.
func TestAHolderThatRanOutUnderAnotherElectionIsShownAsBeingConfirmed(t *testing.T) {
	p := newProgram(t)
	testserver.Need(t, "operationtime") // a member of a set: a server alone has no elections
	client, err := mongolock.New(p.database().Collection("locks"), mongolock.WithOwner("billing-7"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	lease, err := client.TryAcquire(t.Context(), "nightly")
	require.NoError(t, err)
	past, holder := time.Now().Add(-5*time.Second), "holders."+lease.ID()
	_, err = p.database().Collection("locks").UpdateByID(t.Context(), "nightly", bson.D{{Key: "$set", Value: bson.D{
		{Key: "expireAt", Value: past}, {Key: holder + ".expireAt", Value: past}, {Key: holder + ".epoch", Value: "another"},
	}}})
	require.NoError(t, err)
	confirming := `ran out [^ ]+ ago, being confirmed, free in [^ ]+ at most`
	assert.Regexp(t, confirming, p.prints("show", "nightly"))
	assert.Regexp(t, `held, exclusive`, p.prints("show", "nightly"))
	assert.Regexp(t, confirming, p.prints("ls"))
	assert.Regexp(t, `"live":true,"confirming":true,"knownBy":"`, p.prints("show", "nightly", "--output", "json"))
	held := p.start("run", "--try", "nightly", "--", "true")
	assert.Equal(t, exitHeld, held.code())
}
