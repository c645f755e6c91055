package claims

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
)

// grants are the claims about keys and who gets them.
var grants = []claim{
	{"AFreeKeyIsGrantedInOneCommand", anyServer, aFreeKeyIsGrantedInOneCommand},
	{"ASecondTryIsRefusedAtOnceAndToldByWhom", anyServer, aSecondTryIsRefusedAtOnceAndToldByWhom},
	{"KeysDoNotAffectEachOther", anyServer, keysDoNotAffectEachOther},
	{"OddKeysOwnersAndNotesComeBackByteForByte", anyServer, oddKeysOwnersAndNotesComeBackByteForByte},
	{"ReleaseFreesAtOnceTenTimesInARow", anyServer, releaseFreesAtOnceTenTimesInARow},
	{"AContextAlreadyDoneSendsNothing", anyServer, aContextAlreadyDoneSendsNothing},
	{"StartingClientsSendsNothingAndTouchesNobodysLock", anyServer, startingClientsSendsNothingAndTouchesNobodysLock},
	{"ALeaseOutlivesManyTTLsAndKeepsItsToken", anyServer, aLeaseOutlivesManyTTLsAndKeepsItsToken},
	{"AKeyDeletedByHandIsFreeAndItsHolderLearnsAtTheNextRenewal", anyServer, aKeyDeletedByHandIsFreeAndItsHolderLearns},
}

func aFreeKeyIsGrantedInOneCommand(t *testing.T, env Env) {
	c := env.client(t, mongolock.WithOwner("me"))
	release(t, acquire(t, c, "warm"))
	env.Sent()
	start := time.Now()
	l := acquire(t, c, "k", mongolock.Note("why"))
	env.took(t, start, 0, env.Late(), "the grant")
	if sent := env.Sent(); env.OneCommand {
		assert.Equal(t, 1, sent, "commands")
	}
	assert.NoError(t, l.Err())
	assert.Equal(t, "k", l.Key())
	env.near(t, 29*time.Second, l.Remaining(), "the TTL less the margin")
	status, err := c.Inspect(within(t), "k")
	require.NoError(t, err)
	require.Len(t, status.Holders, 1)
	h := status.Holders[0]
	assert.Equal(t, []string{"me", "why", l.ID()}, []string{h.Owner, h.Note, h.ID})
	env.near(t, 30*time.Second, h.ExpireAt.Sub(status.Now), "until the holder expires")
	release(t, l)
}

func aSecondTryIsRefusedAtOnceAndToldByWhom(t *testing.T, env Env) {
	c := env.client(t, mongolock.WithOwner("first"))
	l := acquire(t, c, "k", mongolock.Note("a note"))
	time.Sleep(env.TTL / 10)
	for name, rival := range map[string]*mongolock.Client{"the same client": c, "another": env.client(t)} {
		start := time.Now()
		next, err := rival.TryAcquire(within(t), "k")
		env.took(t, start, 0, env.Late(), name)
		assert.Nil(t, next, name)
		var held *mongolock.HeldError
		require.ErrorAs(t, err, &held, name)
		assert.ErrorIs(t, err, mongolock.ErrHeld, name)
		assert.Equal(t, "k", held.Key, name)
		require.Len(t, held.Holders, 1, name)
		assert.Equal(t, []string{"first", "a note"}, []string{held.Holders[0].Owner, held.Holders[0].Note}, name)
		env.near(t, 30*time.Second-env.TTL/10, held.Left(), name+": left")
	}
	assert.NoError(t, l.Err(), "the holder was disturbed")
	release(t, l)
}

func keysDoNotAffectEachOther(t *testing.T, env Env) {
	c, rival := env.client(t), env.client(t)
	var all []*mongolock.Lease
	for _, key := range []string{"a", "A", "a ", " a", "ab", "a.b", "$x", " ", "\x00", "🔒", "x/y", "á", "a\u0301"} {
		l, err := c.TryAcquire(within(t), key)
		require.NoError(t, err, "%q", key)
		all = append(all, l)
	}
	release(t, all[0])
	for _, l := range all[1:] {
		assert.NoError(t, l.Err(), "%q", l.Key())
		mustBeHeld(t, rival, l.Key())
	}
	release(t, acquire(t, rival, "a"))
	for _, l := range all[1:] {
		release(t, l)
	}
}

func oddKeysOwnersAndNotesComeBackByteForByte(t *testing.T, env Env) {
	const owner = "$owner.$$ROOT \x00 {a.b: 1}"
	c, rival := env.client(t, mongolock.WithOwner(owner)), env.client(t)
	for i, text := range []string{
		" ", "$x", "$$NOW", "$set", "a.b", "a b ", ".", "..", "a..b", "/", "a/b", "//b/", "\x00", "a\x00b", "\t\n\r", "日本語", "👩‍👩‍👧", "e\u0301", "\u00e9",
		"{\"$gt\":\"\"}", "{", `"'\`, "__proto__", "_id", "null", "0", "\u202e", "\ufeff", "\U0010ffff", "A", "a", "mongolock", "';--", "%00", "%s", "*", ".*",
		strings.Repeat("k", 1024), strings.Repeat("é", 512),
	} {
		note := text[:min(len(text), 256)]
		l, err := c.TryAcquire(within(t), text, mongolock.Note(note))
		require.NoError(t, err, "%.20q", text)
		assert.Equal(t, text, l.Key())
		_, err = rival.TryAcquire(within(t), text)
		var held *mongolock.HeldError
		require.ErrorAs(t, err, &held, "%.20q", text)
		status, err := rival.Inspect(within(t), text)
		require.NoError(t, err, "%.20q", text)
		for _, s := range []mongolock.Status{held.Status, status} {
			assert.Equal(t, text, s.Key)
			require.Len(t, s.Holders, 1, "%.20q", text)
			assert.Equal(t, []string{owner, note}, []string{s.Holders[0].Owner, s.Holders[0].Note}, "%.20q", text)
		}
		assert.Contains(t, listed(t, rival, text), text, "of the prefix %.20q", text)
		assert.Len(t, listed(t, rival, ""), i+1, "%.20q: was taken for another", text)
	}
}

// listed are the keys that are held and begin with prefix.
func listed(t *testing.T, c *mongolock.Client, prefix string) (keys []string) {
	t.Helper()
	for s, err := range c.List(within(t), prefix) {
		require.NoError(t, err, "%.20q", prefix)
		keys = append(keys, s.Key)
	}
	return keys
}

func releaseFreesAtOnceTenTimesInARow(t *testing.T, env Env) {
	clients := env.clients(t, 2)
	for i := range 10 {
		start := time.Now()
		l, err := clients[i%2].TryAcquire(within(t), "k")
		require.NoError(t, err, "round %d", i)
		release(t, l)
		env.took(t, start, 0, 2*env.Late(), "a grant and its release")
		assert.Zero(t, env.Records(), "released, and a record is left")
	}
}

func aContextAlreadyDoneSendsNothing(t *testing.T, env Env) {
	c := env.client(t)
	l := acquire(t, c, "held")
	cause := errors.New("tired")
	ctx, cancel := context.WithCancelCause(within(t))
	cancel(cause)
	env.Sent()
	_, errAcquire := c.Acquire(ctx, "k")
	_, errTry := c.TryAcquire(ctx, "k")
	_, errInspect := c.Inspect(ctx, "k")
	_, errBreak := c.Break(ctx, "k", "why", 0)
	_, errDetach := l.Detach(ctx)
	for call, err := range map[string]error{
		"Acquire": errAcquire, "TryAcquire": errTry, "Inspect": errInspect, "Break": errBreak, "Detach": errDetach, "Renew": l.Renew(ctx),
	} {
		assert.ErrorIs(t, err, context.Canceled, call)
		assert.ErrorIs(t, err, cause, call)
		assert.NotErrorIs(t, err, mongolock.ErrHeld, call)
		assert.NotErrorIs(t, err, mongolock.ErrOutcomeUnknown, call)
	}
	assert.Zero(t, env.Sent(), "commands")
	release(t, l)
}

func startingClientsSendsNothingAndTouchesNobodysLock(t *testing.T, env Env) {
	rival := env.client(t)
	l := acquire(t, env.client(t), "k")
	for range env.Crowd {
		env.Sent()
		c := env.Client()
		assert.Zero(t, env.Sent(), "commands that a new client sent")
		release(t, acquire(t, c, "another"))
		assert.NoError(t, c.Close())
	}
	assert.NoError(t, l.Err())
	mustBeHeld(t, rival, "k")
	release(t, l)
}

func aLeaseOutlivesManyTTLsAndKeepsItsToken(t *testing.T, env Env) {
	c, rival := env.client(t, mongolock.TTL(env.TTL)), env.client(t)
	one, two := acquire(t, c, "one"), acquire(t, c, "two") // renewed together
	token := one.Token()
	for range env.Many {
		time.Sleep(env.TTL / 2)
		for _, l := range []*mongolock.Lease{one, two} {
			require.NoError(t, l.Err())
			require.Positive(t, l.Remaining())
			assert.LessOrEqual(t, l.Remaining(), env.TTL)
			mustBeHeld(t, rival, l.Key())
		}
		require.Equal(t, token, one.Token(), "the token is kept")
	}
	release(t, one)
	release(t, two)
}

func aKeyDeletedByHandIsFreeAndItsHolderLearns(t *testing.T, env Env) {
	one, two := env.client(t, mongolock.TTL(env.TTL)), env.client(t)
	l := acquire(t, one, "k")
	end := ended(l)
	env.Delete("k")
	deleted := time.Now()
	next, err := two.TryAcquire(within(t), "k")
	require.NoError(t, err)
	assert.Greater(t, next.Token(), l.Token(), "the token rises")
	assert.LessOrEqual(t, (<-end).Sub(deleted), env.TTL/3+env.Late(), "until the holder learns")
	assert.ErrorIs(t, l.Err(), mongolock.ErrLost)
	assert.ErrorIs(t, l.Release(), mongolock.ErrLost)
	assert.NoError(t, next.Err())
	mustBeHeld(t, one, "k")
	release(t, next)
}
