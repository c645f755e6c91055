package mongostore

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
)

func beginSession(f *fixture, s *Store, ttl time.Duration) store.Session {
	f.t.Helper()
	session := store.Session{ID: rand.Text(), Owner: "owner", TTL: ttl}
	_, err := s.BeginSession(f.ctx(), session)
	require.NoError(f.t, err)
	return session
}

// takesOver takes a key whose holder is over, once that is known for sure: a command that
// took a second, on a busy machine, needs a second look.
func (f *fixture) takesOver(s *Store, key string) (g store.Grant) {
	f.t.Helper()
	require.Eventually(f.t, func() (granted bool) {
		var err error
		g, err = s.Acquire(f.ctx(), exclusiveClaim(key, time.Minute))
		return err == nil
	}, pace.Of(20*time.Second), 20*time.Millisecond, "%q is not free", key)
	return g
}

// aboutSessions are the commands that read or write sessions.
func aboutSessions(sent []bson.Raw) (about []bson.Raw) {
	for _, c := range sent {
		for _, filter := range []string{"query", "filter"} {
			if id, err := c.LookupErr(filter, "_id"); err == nil && strings.Contains(id.String(), `"session"`) {
				about = append(about, c)
			}
		}
	}
	return about
}

func TestASessionIsRenewedWithOneCommandHoweverManyHoldersItHas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := beginSession(f, f.store, time.Minute)
	var batch []store.Renewal
	for i := range 50 {
		c := exclusiveClaim(fmt.Sprint("k", i), time.Minute)
		f.acquire(f.store, c)
		batch = append(batch, store.Renewal{Ref: c.Ref, TTL: time.Minute, Session: session.ID})
	}
	for _, a := range f.store.Renew(f.ctx(), batch) {
		require.NoError(t, a.Err)
	}
	f.tap.Take()
	_, err := f.store.RenewSession(f.ctx(), session)
	require.NoError(t, err)
	sent := f.tap.Take()
	assert.Len(t, slices.DeleteFunc(sent, func(c bson.Raw) bool { return !c.Lookup("hello").IsZero() }), 1)
}

func TestTheKeysOfADeadProcessCostOneMarkTogether(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ttl, keys := pace.Of(500*time.Millisecond), 5
	process := f.another()
	session := beginSession(f, process, ttl)
	for i := range keys {
		c := keptByASession(f, process, fmt.Sprint("k", i), session.ID, ttl)
		assert.Equal(t, session.ID, f.document(c.Key).Holders[0].Session)
	}
	time.Sleep(2 * ttl) // real: it runs out by the clock of the server
	f.tap.Take()
	f.takesOver(f.store, "k0")
	sent := aboutSessions(f.tap.Take())
	require.NotEmpty(t, sent)
	assert.Equal(t, "find", sent[0].Index(0).Key())
	assert.True(t, sent[len(sent)-1].Lookup("update", "$set", fieldDead).Boolean(), "the mark")
	for i := 1; i < keys; i++ {
		f.takesOver(f.store, fmt.Sprint("k", i))
	}
	assert.Empty(t, aboutSessions(f.tap.Take()), "it is known to be dead")
	_, err := process.RenewSession(f.ctx(), session)
	assert.ErrorIs(t, err, store.ErrGone)
}

func TestTheTTLIndexLeavesHoldersUnderASessionAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := beginSession(f, f.store, time.Minute)
	c := exclusiveClaim("k", time.Minute)
	f.acquire(f.store, c)
	require.NoError(t, f.store.Renew(f.ctx(), []store.Renewal{{Ref: c.Ref, TTL: time.Minute, Session: session.ID}})[0].Err)
	assert.Equal(t, farEnd(session.ID), mongobase.Date(f.document("k").expireAt))
	require.NoError(t, f.store.Renew(f.ctx(), []store.Renewal{{Ref: c.Ref, TTL: time.Minute, Alone: true}})[0].Err)
	assert.Less(t, time.Until(f.document("k").expireAt), time.Hour, "once it has left")
}

func TestASessionsDocumentIsNoKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := beginSession(f, f.store, time.Minute)
	for status, err := range f.store.List(f.ctx(), "") {
		t.Errorf("listed: %+v, %v", status, err)
	}
	f.acquire(f.store, exclusiveClaim(session.ID, time.Minute))
	n, err := f.coll.CountDocuments(f.ctx(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)
}

// A key that many processes share for months: one of them stays, the others come and go.
func TestADocumentKeepsFewSessionsWhoseHoldersLeft(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	under := func(session store.Session) store.Claim {
		c := sharedClaim("k", time.Minute)
		f.acquire(f.store, c)
		require.NoError(t, f.store.Renew(f.ctx(), []store.Renewal{{Ref: c.Ref, TTL: c.TTL, Session: session.ID}})[0].Err)
		return c
	}
	staying := beginSession(f, f.store, time.Minute)
	under(staying)
	most, largest := 0, 0
	for range 4 * oldSessions {
		passing := under(beginSession(f, f.store, time.Minute))
		seen := f.document("k")
		most, largest = max(most, len(seen.sessions)), max(largest, seen.size)
		assert.Contains(t, seen.sessions, staying.ID)
		assert.Contains(t, seen.sessions, seen.Holders[1].Session)
		f.release(passing.Ref)
	}
	assert.Greater(t, most, 2, "none stays for even one join: this shows nothing")
	assert.LessOrEqual(t, most, oldSessions+3)
	assert.Less(t, largest, 2048, "bytes")
}

// A mark is also needed for a session whose document is missing: an old primary may say so.
func TestAnAbsentSessionIsMarkedBeforeItsKeyIsTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := beginSession(f, f.store, time.Minute)
	c := exclusiveClaim("k", pace.Of(200*time.Millisecond))
	f.acquire(f.store, c)
	require.NoError(t, f.store.Renew(f.ctx(), []store.Renewal{{Ref: c.Ref, TTL: c.TTL, Session: session.ID}})[0].Err)
	_, err := f.coll.DeleteOne(f.ctx(), bson.D{sessionName(session.ID)})
	require.NoError(t, err)
	time.Sleep(2 * c.TTL) // real: it runs out by the clock of the server
	f.takesOver(f.another(), "k")
	raw, err := f.coll.FindOne(f.ctx(), bson.D{sessionName(session.ID)}).Raw()
	require.NoError(t, err)
	assert.True(t, readSession(raw).dead)
	_, err = f.store.RenewSession(f.ctx(), session)
	assert.ErrorIs(t, err, store.ErrGone)
}

// keptByASession is a claim that a store was granted and has put under a session.
func keptByASession(f *fixture, s *Store, key, session string, ttl time.Duration) store.Claim {
	f.t.Helper()
	c := exclusiveClaim(key, ttl)
	f.acquire(s, c)
	require.NoError(f.t, s.Renew(f.ctx(), []store.Renewal{{Ref: c.Ref, TTL: ttl, Session: session}})[0].Err)
	return c
}

// A sweep's look is answered late. Meanwhile the holder is renewed, and comes under the next
// session of its process.
func TestASweepLeavesAHolderThatWasRenewedSinceItsLook(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "!router")
	assert.True(t, renewedSinceTheSweepsLook(t), "the sweep removed a live holder")
}

func renewedSinceTheSweepsLook(t *testing.T) (holds bool) {
	f, line := newFixtureOnLine(t)
	process := f.another()
	old, next := beginSession(f, process, time.Minute), beginSession(f, process, time.Minute)
	c := keptByASession(f, process, "k", old.ID, pace.Of(200*time.Millisecond))
	time.Sleep(2 * c.TTL) // real: it runs out by the clock of the server
	// A call that took a second may have met an election: then it has to be over for a minute.
	_, err := f.coll.UpdateOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "holders." + c.ID + ".expireAt", Value: time.Now().Add(-2 * time.Minute)}}}})
	require.NoError(t, err)
	require.NoError(t, f.store.EndSession(f.ctx(), old.ID))
	swept := 0
	line.Set(func(name string, _ bson.Raw) (fate testserver.Fate) {
		if name == "delete" {
			if swept++; swept == 1 {
				fate.Before = func() {
					answer := process.Renew(f.ctx(), []store.Renewal{{Ref: c.Ref, TTL: time.Minute, Session: next.ID}})[0]
					assert.NoError(t, answer.Err)
				}
			}
		}
		return fate
	})
	_, err = f.store.Sweep(f.ctx())
	require.NoError(t, err)
	require.Equal(t, 1, swept, "nothing was swept: this shows nothing")
	return !f.absent("k")
}

// A mark that only one node had could be rolled back, and the session be renewed again.
func TestASessionIsMarkedByAMajority(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"{w: majority, j: true}"}, concernsOfMarks(t))
}

func concernsOfMarks(t *testing.T) (concerns []string) {
	f := newFixture(t)
	ttl := pace.Of(200 * time.Millisecond)
	process := f.another()
	keptByASession(f, process, "k", beginSession(f, process, ttl).ID, ttl)
	time.Sleep(2 * ttl) // real: it runs out by the clock of the server
	f.takesOver(f.store, "k")
	for _, c := range f.tap.Take() {
		if dead, _ := c.Lookup("update", "$set", fieldDead).BooleanOK(); dead {
			concerns = append(concerns, renderedValue(c.Lookup("writeConcern"), nil))
		}
	}
	return concerns
}

// A release that is rolled back would bring the holder back for as long as its process lives.
func TestAHolderUnderASessionIsReleasedByAMajority(t *testing.T) {
	t.Parallel()
	for release, concern := range concernsOfReleases(t) {
		assert.Equal(t, "{w: majority}", concern, release)
	}
}

func concernsOfReleases(t *testing.T) map[string]string {
	f := newFixture(t)
	session := beginSession(f, f.store, time.Minute)
	concerns := make(map[string]string)
	release := func(what string, release func(c store.Claim)) {
		c := keptByASession(f, f.store, "k", session.ID, 10*time.Second)
		f.tap.Take()
		release(c)
		sent := f.tap.Take()
		require.NotEmpty(t, sent)
		concerns[what] = renderedValue(sent[len(sent)-1].Lookup("writeConcern"), nil)
	}
	release("one", func(c store.Claim) {
		err := released(f.ctx(), f.store, c.Ref, 0)
		assert.NoError(t, err)
	})
	release("of many", func(c store.Claim) {
		assert.NoError(t, f.store.Release(f.ctx(), []store.Ending{{Ref: c.Ref}, {Ref: exclusiveClaim("none", time.Second).Ref}})[0].Err)
	})
	release("that is not remembered", func(c store.Claim) {
		f.store.steps.Memory.Forget(c.ID)
		err := released(f.ctx(), f.store, c.Ref, 0)
		assert.NoError(t, err)
	})
	release("for later", func(c store.Claim) {
		err := released(f.ctx(), f.store, c.Ref, time.Second)
		assert.NoError(t, err)
	})
	return concerns
}

// Sessions need no index of their own: that would make every insert and delete more expensive.
func TestASweepFindsTheHoldersOfADeadSessionByTheTTLIndex(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "ttl")
	f := newFixture(t)
	require.NoError(t, f.store.EnsureIndex(f.ctx()))
	session, other := beginSession(f, f.store, time.Minute), beginSession(f, f.store, time.Minute)
	under := func(c store.Claim, session store.Session) {
		f.acquire(f.store, c)
		require.NoError(t, f.store.Renew(f.ctx(), []store.Renewal{{Ref: c.Ref, TTL: c.TTL, Session: session.ID}})[0].Err)
	}
	for i := range 10 {
		under(exclusiveClaim(fmt.Sprint("other", i), time.Minute), other)
		under(sharedClaim(fmt.Sprint("shared", i), time.Minute), other)
		f.acquire(f.store, exclusiveClaim(fmt.Sprint("alone", i), time.Minute))
	}
	under(exclusiveClaim("mine", time.Minute), session)
	under(sharedClaim("shared0", time.Minute), session)

	plan, err := f.coll.Database().RunCommand(f.ctx(), bson.D{{Key: "explain", Value: bson.D{{Key: "find", Value: f.coll.Name()}, {Key: "filter", Value: leftUnder(session.ID)}}}}).Raw()
	require.NoError(t, err)
	assert.Contains(t, plan.Lookup("queryPlanner", "winningPlan").String(), indexName)
	cursor, err := f.coll.Find(f.ctx(), leftUnder(session.ID))
	require.NoError(t, err)
	var left []bson.Raw
	require.NoError(t, cursor.All(f.ctx(), &left))
	var keys []string
	for _, doc := range left {
		keys = append(keys, readRecord(doc).key)
	}
	assert.ElementsMatch(t, []string{"mine", "shared0"}, keys)
}

func TestAListReadsTheSessionsOfABatchTogether(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const processes = 20
	for i := range processes {
		keptByASession(f, f.store, fmt.Sprint("k", i), beginSession(f, f.store, time.Minute).ID, time.Minute)
	}
	reader := f.another(f.tap.On)
	f.tap.Take()
	seen := 0
	for status, err := range reader.List(f.ctx(), "k") {
		require.NoError(t, err)
		assert.False(t, status.Free())
		seen++
	}
	assert.Equal(t, processes, seen)
	finds := 0
	for _, c := range f.tap.Take() {
		if c.Index(0).Key() == "find" {
			finds++
		}
	}
	assert.Equal(t, 3, finds, "one for the keys, one for their sessions, and one for numbers of permits")
}

// A look at the key may succeed, and the one at its session fail: the holder was shown as dead, and Break
// passed it over.
func TestASessionThatCannotBeReadIsAsItWasLastSeen(t *testing.T) {
	t.Parallel()
	s := open(inMemory(t), config{logger: slog.New(slog.DiscardHandler)})
	_, err := s.BeginSession(t.Context(), store.Session{ID: "one", Owner: "me", TTL: time.Minute})
	require.NoError(t, err)
	x := &s.sessions
	x.Learn(t.Context(), []string{"one"})
	before, known := x.view("one")
	require.True(t, known)
	require.Len(t, before.Holders, 1)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = x.read(ended, []string{"one", "two"})
	require.Error(t, err)
	after, _ := x.view("one")
	assert.Equal(t, before, after)
	_, known = x.view("two")
	assert.False(t, known)
}

// The search for what was left long ago is made again after a fault.
func TestASurveyThatFailsIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := open(inMemory(t), config{logger: slog.New(slog.DiscardHandler)})
	_, err := s.BeginSession(t.Context(), store.Session{ID: "one", Owner: "me", TTL: time.Minute})
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, s.sessions.survey(ended))
	assert.False(t, s.sessions.surveyed.Load())
	require.NoError(t, s.sessions.survey(t.Context()))
	assert.True(t, s.sessions.surveyed.Load())
}

// Documents of several holders are removed after the bulk that removes these: a sweep may be cut off between.
func TestASweepRemovesWhatOneThatWasCutOffHasEmptied(t *testing.T) {
	t.Parallel()
	coll := inMemory(t)
	s := open(coll, config{logger: slog.New(slog.DiscardHandler)})
	_, err := s.BeginSession(t.Context(), store.Session{ID: "one", Owner: "me", TTL: time.Minute})
	require.NoError(t, err)
	_, err = coll.InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: "k"}, {Key: fieldMark, Value: shape}, {Key: fieldMode, Value: "shared"}, {Key: fieldLimit, Value: 0}, {Key: fieldHolders, Value: bson.D{}},
		{Key: fieldRev, Value: int64(7)}, {Key: fieldSessions, Value: bson.A{"one"}}, {Key: fieldExpireAt, Value: never}, {Key: fieldAt, Value: time.Now()},
	})
	require.NoError(t, err)
	require.NoError(t, s.EndSession(t.Context(), "one"))
	_, err = s.Sweep(t.Context())
	require.NoError(t, err)
	n, err := coll.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.Zero(t, n)
}

// Such as a validator that refuses the mark of a dead session.
func TestWhatIsKnownToBeLeftIsSweptThoughTheSurveyFails(t *testing.T) {
	t.Parallel()
	coll := inMemory(t)
	s := open(coll, config{logger: slog.New(slog.DiscardHandler)})
	for _, id := range []string{"one", "long ago"} {
		_, err := s.BeginSession(t.Context(), store.Session{ID: id, Owner: "me", TTL: time.Minute})
		require.NoError(t, err)
	}
	_, err := coll.UpdateOne(t.Context(), bson.D{sessionName("long ago")}, bson.D{{Key: "$set", Value: bson.D{{Key: fieldExpireAt, Value: time.Now().AddDate(-1, 0, 0)}}}})
	require.NoError(t, err)
	require.NoError(t, s.EndSession(t.Context(), "one"))
	require.NotEmpty(t, s.sessions.leftBy())
	refusing := inMemory(t)
	require.NoError(t, refusing.Database().Client().Disconnect(t.Context()))
	s.base.Durable = refusing
	_, err = s.Sweep(t.Context())
	require.Error(t, err)
	assert.Empty(t, s.sessions.leftBy())
}
