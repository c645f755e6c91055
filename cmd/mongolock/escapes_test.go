//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/once"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/schedule"
)

// controls has every character of Unicode that is not printable, in parts that fit into a text of some 200 bytes.
func controls() (parts []string) {
	var b strings.Builder
	for r := rune(1); r <= unicode.MaxRune; r++ {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			if b.WriteRune(r); b.Len() > 150 {
				parts = append(parts, b.String())
				b.Reset()
			}
		}
	}
	return append(parts, b.String(), "\x1b]0;pwned\a\x1b[2J")
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
	for i, evil := range controls() {
		key := "k" + evil
		client, err := mongolock.New(db.Collection("locks"), mongolock.WithOwner("o"+evil))
		require.NoError(t, err)
		lease, err := client.TryAcquire(ctx, key, mongolock.Note("n"+evil))
		require.NoError(t, err)
		jobs, err := schedule.New(db.Collection("jobs"), schedule.WithOwner("o"+evil))
		require.NoError(t, err)
		ran := make(chan struct{})
		require.NoError(t, jobs.Add(key, schedule.At(time.Now().Add(500*time.Millisecond)), func(context.Context, schedule.Run) error { close(ran); return errors.New("e" + evil) }))
		running, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { _ = jobs.Run(running); close(ended) }()
		_ = once.Do(ctx, db.Collection("once"), key, func(context.Context, once.Run) error { return errors.New("e" + evil) }, once.WithOwner("o"+evil))
		require.NoError(t, once.Do(ctx, db.Collection("once"), "done"+evil, func(context.Context, once.Run) error { return nil }, once.WithOwner("o"+evil), once.Content([]byte("a"))))
		storage, err := pathlock.OnMongo(db.Collection("locks"))
		require.NoError(t, err)
		tree, err := pathlock.New(storage, "files")
		require.NoError(t, err)
		_, err = tree.Lock(ctx, pathlock.Request{Path: "/p" + strings.ReplaceAll(evil, "/", ""), Owner: []byte("o" + evil)})
		path := "/p" + evil
		if err != nil { // not every character may be in a path
			path = "/p" + string(rune('a'+i%26)) + string(rune('a'+i/26))
			_, err = tree.Lock(ctx, pathlock.Request{Path: path, Owner: []byte("o" + evil)})
		}
		require.NoError(t, err)
		_, err = db.Collection("docs").InsertOne(ctx, bson.D{{Key: "_id", Value: key}})
		require.NoError(t, err)
		docs, err := doclock.New[bson.M](db.Collection("docs"), doclock.WithOwner("o"+evil))
		require.NoError(t, err)
		_, err = docs.TryAcquire(ctx, doclock.ID(key), mongolock.Note("n"+evil))
		require.NoError(t, err)
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
		lists := [][]string{
			{"ls"}, {"show", key}, {"leaders"}, {"jobs"}, {"jobs", key}, {"once-ls"}, {"once-ls", key}, {"documents", "docs"}, {"paths", "ls"}, {"doctor"},
			{"run", "--try", key, "--", "true"}, {"run", "k", "--", "no" + evil}, {"once", "--checksum", "b", "done" + evil, "--", "true"}, {"partitions", key},
			{"paths", "lock", "--try", path, "--", "true"}, {"paths", "break", path}, {"break", key, "--reason", "x"}, {"jobs", "run", "no" + evil},
			{"show", "no" + evil, "--nosuch" + evil}, {"ls", "--db", "d" + evil}, {"--uri", "mongodb://" + evil, "ls"}, {"run", "k", "--ttl", evil, "--", "true"},
		}
		for _, args := range lists {
			if i > 0 && i < len(controls())-1 && args[0] != "ls" && args[0] != "show" {
				continue // the characters differ, the ways do not
			}
			p.start(args...).tame()
			p.start(append([]string{"--output", "json"}, args...)...).tame()
		}
		stop()
		<-ended
		require.NoError(t, lease.Release())
		_ = tree.Close()
		_ = docs.Close()
		_ = client.Close()
	}
}

// The holder is told why its lease was broken, and a call that waited why the run failed.
func TestWhatAHolderOrAWaiterIsToldIsNotRaw(t *testing.T) {
	p := newProgram(t)
	const evil = "x\x1b]0;pwned\a\u009b2J\u202e"
	for _, output := range []string{"text", "json"} {
		a := p.start("--output", output, "run", "--ttl", "1s", "a", "--", "sleep", "20")
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
	require.NoError(t, db.Collection("locks").FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: "k"}}, bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "expireAt", Value: far}}}}}).Err())
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
		Past  []once.Entry
		docView
	}{At: far.Time(), Since: time.UnixMilli(0), Past: []once.Entry{{Began: far.Time()}}, docView: docView{ID: json.RawMessage("1"), keyView: keyView{Now: far.Time()}}}
	var b strings.Builder
	require.NoError(t, encode(&b, v))
	assert.Equal(t, 3, strings.Count(b.String(), "9999-12-31"), b.String())
	assert.NotContains(t, b.String(), `"since"`)
}
