//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/once"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/schedule"
)

// evil has characters of each kind that is not printable. It fits into a name of 256 bytes.
const evil = "\x01\t\n\r\x7f\u0085\u009b2J\u00ad\u0600\u180e\u200b\u200e\u2028\u2029\u202e\u2066\ufeff\ufff9\U0001343f\U0001d173\U000e0041\x1b]0;pwned\a\x1b[2J"

// Whatever character is in it, no text leaves on one of these ways raw.
func TestNoControlCharacterOfUnicodeIsWrittenRaw(t *testing.T) {
	t.Parallel()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			continue
		}
		text := "a" + string(r)
		var inJSON strings.Builder
		require.NoError(t, encode(&inJSON, text))
		for _, out := range []string{shown(text), clean(text), strings.TrimSuffix(inJSON.String(), "\n")} {
			if strings.ContainsFunc(out, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%U is written as %q", r, out)
			}
		}
	}
}

// tame checks that a text has nothing that could steer a terminal: line breaks and tabs between fields are ours.
func (r *running) tame() {
	r.t.Helper()
	r.code()
	out := r.out.String()
	for _, c := range out {
		if !unicode.IsPrint(c) && c != '\n' && c != '\t' {
			assert.Fail(r.t, "a raw character", "%U of %v in %q", c, r.Args, out)
			return
		}
	}
	for line := range strings.Lines(out) {
		assert.Less(r.t, len(line), 20_000, "%v", r.Args)
	}
}

func TestNothingThatOthersWroteReachesTheTerminalRaw(t *testing.T) {
	p := newProgram(t)
	ctx, db := t.Context(), p.database()
	file := "f" + strings.ReplaceAll(evil, "/", "")
	key := "k" + evil
	client, err := mongolock.New(db.Collection("locks"), mongolock.WithOwner("o"+evil))
	require.NoError(t, err)
	lease, err := client.TryAcquire(ctx, key, mongolock.Note("n"+evil))
	require.NoError(t, err)
	jobs, err := schedule.New(db.Collection("jobs"), schedule.WithOwner("o"+evil))
	require.NoError(t, err)
	ran := make(chan struct{})
	began := sync.OnceFunc(func() { close(ran) }) // on a busy machine it is repeated
	require.NoError(t, jobs.Add(key, schedule.At(time.Now().Add(500*time.Millisecond)), func(context.Context, schedule.Run) error { began(); return errors.New("e" + evil) }))
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { _ = jobs.Run(running); close(ended) }()
	_ = once.Do(ctx, db.Collection("once"), key, func(context.Context, once.Run) error { return errors.New("e" + evil) }, once.WithOwner("o"+evil))
	require.NoError(t, once.Do(ctx, db.Collection("once"), "done"+evil, func(context.Context, once.Run) error { return nil }, once.WithOwner("o"+evil), once.Content([]byte("a"))))
	storage, err := pathlock.OnMongo(db.Collection("locks"))
	require.NoError(t, err)
	tree, err := pathlock.New(storage, "files")
	require.NoError(t, err)
	const path = "/p\u00ad\u200b\u2028\u202e" // control characters may not be in a path
	_, err = tree.Lock(ctx, pathlock.Request{Path: path, Owner: []byte("o" + evil)})
	require.NoError(t, err)
	_, err = db.Collection("docs").InsertOne(ctx, bson.D{{Key: "_id", Value: key}})
	require.NoError(t, err)
	docs, err := doclock.New[bson.M](db.Collection("docs"), doclock.WithOwner("o"+evil))
	require.NoError(t, err)
	_, err = docs.TryAcquire(ctx, doclock.ID(key), mongolock.Note("n"+evil))
	require.NoError(t, err)
	_, err = db.Collection("docs").InsertOne(ctx, bson.D{{Key: "_id", Value: "dead" + evil}, {Key: "lock", Value: bson.D{{Key: "doclock", Value: 1}, {Key: "attempts", Value: 9}, {Key: "done", Value: true}, {Key: "dead", Value: time.Now()}}}})
	require.NoError(t, err)
	go func() { // ends with running
		_ = assign.Run(running, client, "work"+evil, 2, func(ctx context.Context, _ assign.Partition) error { <-ctx.Done(); return ctx.Err() })
	}()
	for foreign, doc := range map[string]bson.D{
		"f1" + evil: {{Key: "mongolock", Value: 1}, {Key: "m" + strings.NewReplacer("\x00", "", "$", "").Replace(evil), Value: 1}},
		"f2" + evil: {{Key: "mongolock", Value: 1}, {Key: "mode", Value: strings.Repeat(evil, 300)}},
	} {
		_, err = db.Collection("foreign").InsertOne(ctx, append(bson.D{{Key: "_id", Value: foreign}}, doc...))
		require.NoError(t, err)
		for _, args := range [][]string{{"show", foreign}, {"run", "--try", foreign, "--", "true"}, {"break", foreign, "--reason", "x", "-y"}} {
			p.start(append(args, "--collection", "foreign")...).tame()
		}
	}
	<-ran
	require.Eventually(t, func() bool { return strings.Contains(p.prints("partitions"), "work") }, pace.Of(20*time.Second), 20*time.Millisecond)
	assert.Contains(t, p.prints("documents", "docs", "--dead"), "dead")
	require.NoError(t, os.WriteFile(p.dir+"/"+file, []byte("mongodb://"+evil), 0o600))
	for _, args := range [][]string{
		{"ls", "-v"}, {"ls", "--all"}, {"ls", key}, {"show", key}, {"doctor", "--long", "1ns"}, {"partitions"}, {"partitions", key}, {"partitions", "--resize", "3", "work" + evil},
		{"jobs"}, {"jobs", key}, {"jobs", "check"}, {"jobs", "check", key, "no" + evil}, {"jobs", "run", key}, {"jobs", "run", "no" + evil},
		{"jobs", "pause", key}, {"jobs", "resume", key}, {"jobs", "forget", key}, {"jobs", "pause", "no" + evil},
		{"once-ls"}, {"once-ls", key}, {"once-ls", "no" + evil}, {"once", "--checksum", "b", "done" + evil, "--", "true"}, {"once", "done" + evil, "--content", file, "--", "true"}, {"once", "k", "--content", "no" + file, "--", "true"},
		{"documents", "docs"}, {"documents", "docs", "--all"}, {"documents", "docs", "--dead"}, {"documents", "docs", "--backlog", "--came", "c" + evil}, {"documents", "docs", "--backlog", "--filter", evil},
		{"documents", "docs", "--field", "f" + evil}, {"documents", "d" + evil},
		{"paths", "ls"}, {"paths", "ls", path}, {"paths", "ls", "--tree", "t" + evil}, {"paths", "ls", "--dir", "no" + file}, {"paths", "lock", "--try", path, "--", "true"}, {"paths", "lock", "--wait", "1ms", path, "--", "true"}, {"paths", "break", path}, {"paths", "break", "-y", path},
		{"run", "--try", key, "--", "true"}, {"run", "--wait", "1ms", key, "--", "true"}, {"run", "k", "--", "no" + evil}, {"run", "k", "--ttl", evil, "--", "true"}, {"run", "k", "--at", evil, "--", "true"},
		{"show", "no" + evil, "--nosuch" + evil}, {"no" + evil}, {"ls", "--output", evil}, {"ls", "--db", "d" + evil}, {"ls", "--collection", "c" + evil}, {"ls", "--owner", "o" + strings.Repeat(evil, 9)},
		{"--uri", "mongodb://" + evil, "ls"}, {"--uri-file", file, "ls"}, {"--uri-file", "no" + file, "ls"},
		{"break", key, "--reason", "r" + evil}, {"break", key, "--reason", "r" + evil, "--grace", "1ns", "-y"}, {"break", "no" + evil, "--reason", "x"},
	} {
		text, inJSON := p.start(args...), p.start(append([]string{"--output", "json"}, args...)...)
		text.tame()
		inJSON.tame()
	}
	stop()
	<-ended
	assert.ErrorIs(t, lease.Release(), mongolock.ErrLost, "it was broken")
	_ = tree.Close()
	_ = docs.Close()
	_ = client.Close()
}

// The holder is told why its lease was broken, and a call that waited why the run failed.
func TestWhatAHolderOrAWaiterIsToldIsNotRaw(t *testing.T) {
	p := newProgram(t)
	for _, output := range []string{"text", "json"} {
		a := p.start("--output", output, "run", "--ttl", "5s", "a", "--", "sleep", "20")
		require.Eventually(t, func() bool { return strings.Contains(p.prints("ls"), "sleep 20") }, 20*time.Second, 20*time.Millisecond)
		require.Zero(t, p.start("break", "a", "--reason", evil, "-y").code())
		a.tame()
		assert.Contains(t, a.out.String(), "pwned")
		first := p.start("--owner", "host"+evil, "once", "m"+output, "--", "bash", "-c", "until [ -e over ]; do sleep 0.02; done; exit 3")
		require.Eventually(t, func() bool { return strings.Contains(p.prints("once-ls"), "m"+output) }, 20*time.Second, 20*time.Millisecond)
		waits := p.start("--output", output, "once", "m"+output, "--", "bash", "-c", "exit 3")
		require.Eventually(t, func() bool {
			return strings.Contains(p.prints("--output", "json", "documents", "once"), `"line":[{"owner"`)
		}, 20*time.Second, 20*time.Millisecond)
		require.NoError(t, os.WriteFile(p.dir+"/over", nil, 0o600))
		assert.Equal(t, 3, first.code())
		waits.tame()
		assert.Contains(t, waits.out.String(), "pwned")
		require.NoError(t, os.Remove(p.dir+"/over"))
	}
}

// A date that JSON cannot have ends no list.
func TestADateBeyondTheYear9999EndsNoList(t *testing.T) {
	p := newProgram(t)
	ctx, db, far := t.Context(), p.database(), bson.DateTime(253402300800000)
	p.prints("run", "--min-hold", "1m", "k", "--", "true")
	p.prints("once", "m", "--", "true")
	require.NoError(t, db.Collection("locks").FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: "k"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "expireAt", Value: far}}}}).Err())
	var lock struct{ Holders map[string]bson.M }
	require.NoError(t, db.Collection("locks").FindOne(ctx, bson.D{{Key: "_id", Value: "k"}}).Decode(&lock))
	for id := range lock.Holders {
		_, err := db.Collection("locks").UpdateByID(ctx, "k", bson.D{{Key: "$set", Value: bson.D{{Key: "holders." + id + ".since", Value: far}, {Key: "holders." + id + ".expireAt", Value: far}}}})
		require.NoError(t, err)
	}
	for _, list := range [][]string{{"ls", "--all"}, {"show", "k"}} {
		text := p.prints(append([]string{"--output", "json"}, list...)...)
		assert.True(t, json.Valid([]byte(text)), text)
		assert.Contains(t, text, `"since":"9999-12-31T23:59:59Z"`, "%v", list)
	}
	v := struct {
		At    time.Time `json:"at"`
		Since time.Time `json:"since,omitzero"`
		Runs  []schedule.Run
		keyView
	}{At: far.Time(), Since: time.UnixMilli(0), Runs: []schedule.Run{{ExpireAt: far.Time()}}, keyView: keyView{Now: far.Time()}}
	var b strings.Builder
	require.NoError(t, encode(&b, v))
	assert.Equal(t, 3, strings.Count(b.String(), "9999-12-31"), b.String())
	assert.NotContains(t, b.String(), `"since"`)
}
