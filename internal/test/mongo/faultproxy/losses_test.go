package faultproxy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

// onEach runs a test with the driver on the fake server and on the real one.
func onEach(t *testing.T, test func(t *testing.T, uri string), needs ...string) {
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		test(t, faultproxy.StartFake(t))
	})
	t.Run("mongodb", func(t *testing.T) {
		t.Parallel()
		test(t, testserver.URI(t, needs...))
	})
}

func TestWithoutARuleEverythingPasses(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newSetup(t, uri, noRetries)
		for _, id := range []string{"a", "b"} {
			require.NoError(t, s.insert(t.Context(), id))
			assert.True(t, s.applied(t, id), "%s is not there", id)
		}
		assert.Equal(t, 2, s.proxy.Count("insert"), "%v", s.proxy.Counts())
		assert.Zero(t, s.proxy.Counts()["find"], "the other client went through the proxy")
	})
}

func TestEachLossIsSeenByTheCallerAndTheServerAsDocumented(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		action  faultproxy.Action
		applied bool
		network bool // the caller sees a network error; else it waits until its context ends
	}{
		"DropReply":    {faultproxy.DropReply(), true, true},
		"ResetReply":   {faultproxy.ResetReply(), true, true},
		"SwallowReply": {faultproxy.SwallowReply(), true, false},
		"HoldReply":    {faultproxy.HoldReply(), true, false},
		"DropCommand":  {faultproxy.DropCommand(), false, true},
		"HalfOpen":     {faultproxy.HalfOpen(), false, false},
		"Hold":         {faultproxy.Hold(), false, false},
		"Orphan":       {faultproxy.Orphan(), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, uri string) {
				s := newSetup(t, uri, noRetries)
				rule := s.proxy.On(faultproxy.Command("insert").Where(func(cmd bson.Raw) bool { return is(cmd, "x") }), c.action)
				wait := 5 * time.Second
				if !c.network {
					wait = 300 * time.Millisecond
				}
				err := s.insert(soon(t, wait), "x")
				timedOut := errors.Is(err, context.DeadlineExceeded)
				assert.Equal(t, c.network, !timedOut, "the caller saw %v", err)
				assert.True(t, timedOut || mongo.IsNetworkError(err), "the caller saw %v", err)
				await(t, rule.Fired(), "the rule fires")
				assert.Equal(t, c.applied, s.applied(t, "x"), "applied")
				assert.NoError(t, s.insert(soon(t, 5*time.Second), "y"), "another command")
			})
		})
	}
}

func TestARetriedWriteSucceedsThoughItsFirstReplyWasLost(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newSetup(t, uri, retries)
		rule := s.proxy.On(faultproxy.Command("insert").Nth(1), faultproxy.DropReply())
		assert.NoError(t, s.insert(t.Context(), "x"))
		assert.Equal(t, 2, s.proxy.Count("insert"))
		assert.Equal(t, 1, rule.Hits())
	}, "retryable")
}

func TestAHeldCommandIsAppliedAfterItsCallerGaveUp(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newSetup(t, uri, noRetries)
		rule := s.proxy.On(faultproxy.Command("insert").Nth(1), faultproxy.Hold())
		assert.ErrorIs(t, s.insert(soon(t, 200*time.Millisecond), "x"), context.DeadlineExceeded)
		await(t, rule.Fired(), "the command is held")
		assert.False(t, s.applied(t, "x"), "applied before it was released")
		rule.Release()
		await(t, rule.Applied(), "the late command is answered")
		assert.True(t, s.applied(t, "x"), "lost, not late")
		assert.NoError(t, s.insert(t.Context(), "y"))
	})
}

// This is the stalled twin. If sessions have transaction numbers, the late first send of a
// retried write changes nothing; otherwise it is an insert of its own.
func TestAnOrphanIsOvertakenByItsRetryAndArrivesLate(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newSetup(t, uri, retries)
		rule := s.proxy.On(faultproxy.Command("insert").Nth(1), faultproxy.Orphan())
		require.NoError(t, s.insert(soon(t, 5*time.Second), "x"))
		assert.True(t, s.applied(t, "x"), "the retry is not there")
		select {
		case <-rule.Applied():
			t.Error("applied before it was released")
		default:
		}
		rule.Release()
		await(t, rule.Applied(), "the late command is answered")
	}, "retryable")
}

func TestRemovingARuleReleasesTheCommandsItHolds(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newSetup(t, uri, noRetries)
		rule := s.proxy.On(faultproxy.Command("insert"), faultproxy.Hold())
		done := make(chan error, 1)
		go func() { done <- s.insert(soon(t, 5*time.Second), "x") }()
		await(t, rule.Fired(), "the command is held")
		rule.Remove()
		assert.NoError(t, <-done)
		assert.NoError(t, s.insert(t.Context(), "y"))
		assert.Equal(t, 1, rule.Hits())
	})
}

func TestADelayLastsAsLongAsAsked(t *testing.T) {
	t.Parallel()
	const d = 200 * time.Millisecond
	for name, action := range map[string]faultproxy.Action{
		"command": faultproxy.DelayCommand(d), "reply": faultproxy.DelayReply(d),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, uri string) {
				s := newSetup(t, uri, noRetries)
				rule := s.proxy.On(faultproxy.Command("insert"), action)
				begin := time.Now()
				assert.NoError(t, s.insert(t.Context(), "x"))
				assert.GreaterOrEqual(t, time.Since(begin), d)
				rule.Remove()
				assert.NoError(t, s.insert(t.Context(), "y"))
				assert.Equal(t, 1, rule.Hits())
			})
		})
	}
}

func TestAServerIsGoneAndBack(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(*faultproxy.Proxy){
		"Cut": (*faultproxy.Proxy).Cut, "Silence": (*faultproxy.Proxy).Silence,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, uri string) {
				s := newSetup(t, uri, noRetries)
				require.NoError(t, s.insert(t.Context(), "a"))
				gone(s.proxy)
				assert.Error(t, s.insert(soon(t, 300*time.Millisecond), "b"))
				s.proxy.Restore()
				s.settle(t)
				assert.NoError(t, s.insert(t.Context(), "c"))
				assert.False(t, s.applied(t, "b"), "b was applied")
				assert.True(t, s.applied(t, "c"), "c was not applied")
			})
		})
	}
}

func TestNewConnectionsAreAcceptedAfterDropConnections(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newSetup(t, uri, noRetries)
		require.NotZero(t, s.proxy.Connections(), "no connection to drop")
		s.proxy.DropConnections()
		s.settle(t)
	})
}

func TestCloseEndsTheHeldPaths(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newSetup(t, uri, noRetries)
		command := s.proxy.On(faultproxy.Command("insert").Nth(1), faultproxy.Hold())
		reply := s.proxy.On(faultproxy.Command("insert").Nth(2), faultproxy.HoldReply())
		for _, rule := range []*faultproxy.Rule{command, reply} {
			go func() { _ = s.insert(soon(t, 5*time.Second), bson.NewObjectID().Hex()) }()
			await(t, rule.Fired(), "something is held")
		}
		begin := time.Now()
		assert.NoError(t, s.proxy.Close()) // waits for the proxy's goroutines
		assert.Less(t, time.Since(begin), 2*time.Second)
		assert.Zero(t, s.proxy.Connections())
		assert.NoError(t, s.proxy.Close(), "closed twice")
	})
}
