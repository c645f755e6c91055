package faultproxy_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/testserver"
)

// onEach runs a test with the driver on the fake server and on the real one.
func onEach(t *testing.T, test func(t *testing.T, uri string), wants ...string) {
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		test(t, faultproxy.StartFake(t))
	})
	t.Run("mongodb", func(t *testing.T) {
		t.Parallel()
		test(t, testserver.URI(t, wants...))
	})
}

func TestWithoutARuleEverythingPasses(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newStage(t, uri, noRetries)
		for _, id := range []string{"a", "b"} {
			if err := s.insert(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if !s.applied(t, id) {
				t.Error(id, "is not there")
			}
		}
		if n := s.proxy.Count("insert"); n != 2 {
			t.Errorf("%d inserts went through the proxy: %v", n, s.proxy.Counts())
		}
		if s.proxy.Counts()["find"] != 0 {
			t.Error("the other client went through the proxy")
		}
	})
}

// What a caller learns of a command, and what became of it.
func TestEachLossLeavesTheServerAsItSays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		action  faultproxy.Action
		applied bool
		network bool // else the caller waits until its context ends
	}{
		"DropReply":    {faultproxy.DropReply(), true, true},
		"ResetReply":   {faultproxy.ResetReply(), true, true},
		"SwallowReply": {faultproxy.SwallowReply(), true, false},
		"HoldReply":    {faultproxy.HoldReply(), true, false},
		"DropCommand":  {faultproxy.DropCommand(), false, true},
		"Reset":        {faultproxy.Reset(), false, true},
		"HalfOpen":     {faultproxy.HalfOpen(), false, false},
		"Hold":         {faultproxy.Hold(), false, false},
		"Orphan":       {faultproxy.Orphan(), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, uri string) {
				s := newStage(t, uri, noRetries)
				rule := s.proxy.On(faultproxy.Command("insert").Where(func(cmd bson.Raw) bool { return is(cmd, "x") }), c.action)
				wait := 5 * time.Second
				if !c.network {
					wait = 300 * time.Millisecond
				}
				err := s.insert(soon(t, wait), "x")
				if timedOut := errors.Is(err, context.DeadlineExceeded); timedOut == c.network || !timedOut && !mongo.IsNetworkError(err) {
					t.Errorf("the caller saw %v", err)
				}
				await(t, rule.Fired(), "the rule fires")
				if got := s.applied(t, "x"); got != c.applied {
					t.Errorf("applied: %v", got)
				}
				if err := s.insert(soon(t, 5*time.Second), "y"); err != nil {
					t.Errorf("another command: %v", err)
				}
			})
		})
	}
}

func TestARetriedWriteSucceedsThoughItsFirstReplyWasLost(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newStage(t, uri, retries)
		rule := s.proxy.On(faultproxy.Command("insert").Nth(1), faultproxy.DropReply())
		if err := s.insert(t.Context(), "x"); err != nil {
			t.Error(err)
		}
		if n := s.proxy.Count("insert"); n != 2 || rule.Hits() != 1 {
			t.Errorf("%d inserts, %d hits", n, rule.Hits())
		}
	}, "retryable")
}

func TestAHeldCommandIsAppliedAfterItsCallerGaveUp(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newStage(t, uri, noRetries)
		rule := s.proxy.On(faultproxy.Command("insert").Nth(1), faultproxy.Hold())
		if err := s.insert(soon(t, 200*time.Millisecond), "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		await(t, rule.Fired(), "the command is held")
		if s.applied(t, "x") {
			t.Error("applied before it was released")
		}
		rule.Release()
		await(t, rule.Applied(), "the late command is answered")
		if !s.applied(t, "x") {
			t.Error("lost, not late")
		}
		if err := s.insert(t.Context(), "y"); err != nil {
			t.Error(err)
		}
	})
}

// The stalled twin: with the session's book-keeping in between, the late first send
// of a retried write changes nothing; without, it is an insert of its own.
func TestAnOrphanIsOvertakenByItsRetryAndArrivesLate(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newStage(t, uri, retries)
		rule := s.proxy.On(faultproxy.Command("insert").Nth(1), faultproxy.Orphan())
		if err := s.insert(soon(t, 5*time.Second), "x"); err != nil {
			t.Fatal(err)
		}
		if !s.applied(t, "x") {
			t.Error("the retry is not there")
		}
		select {
		case <-rule.Applied():
			t.Error("applied before it was released")
		default:
		}
		rule.Release()
		await(t, rule.Applied(), "the late command is answered")
	}, "retryable")
}

func TestRemoveLetsGoWhatARuleHolds(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newStage(t, uri, noRetries)
		rule := s.proxy.On(faultproxy.Command("insert"), faultproxy.Hold())
		done := make(chan error, 1)
		go func() { done <- s.insert(soon(t, 5*time.Second), "x") }()
		await(t, rule.Fired(), "the command is held")
		rule.Remove()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := s.insert(t.Context(), "y"); err != nil || rule.Hits() != 1 {
			t.Errorf("%v, %d hits", err, rule.Hits())
		}
	})
}

func TestDelaysTakeTheirTimeAndNoMore(t *testing.T) {
	t.Parallel()
	const d = 200 * time.Millisecond
	for name, action := range map[string]faultproxy.Action{
		"command": faultproxy.DelayCommand(d), "reply": faultproxy.DelayReply(d),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, uri string) {
				s := newStage(t, uri, noRetries)
				rule := s.proxy.On(faultproxy.Command("insert"), action)
				begin := time.Now()
				if err := s.insert(t.Context(), "x"); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took < d {
					t.Errorf("it took %v", took)
				}
				rule.Remove()
				if err := s.insert(t.Context(), "y"); err != nil {
					t.Error(err)
				}
				if rule.Hits() != 1 {
					t.Errorf("%d hits", rule.Hits())
				}
			})
		})
	}
}

func TestAWriteConcernErrorIsSeenAsSuch(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newStage(t, uri, noRetries)
		rule := s.proxy.On(faultproxy.Command("insert"), faultproxy.WriteConcernError(faultproxy.CodeWriteConcernTimeout))
		err := s.insert(t.Context(), "x")
		var failed mongo.WriteException
		if !errors.As(err, &failed) || failed.WriteConcernError == nil || failed.WriteConcernError.Code != 64 {
			t.Errorf("got %v", err)
		}
		await(t, rule.Fired(), "the rule fires")
		if !s.applied(t, "x") {
			t.Error("not applied")
		}
	})
}

func TestARetryableWriteConcernErrorIsRetried(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newStage(t, uri, retries)
		s.proxy.On(faultproxy.Command("insert").Next(1), faultproxy.WriteConcernError(faultproxy.CodeShutdownInProgress))
		if err := s.insert(t.Context(), "x"); err != nil {
			t.Error(err)
		}
		if n := s.proxy.Count("insert"); n != 2 {
			t.Errorf("%d inserts", n)
		}
	}, "retryable")
}

func TestNotPrimaryIsSeenAsSuch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		action  faultproxy.Action
		code    int
		applied bool
	}{
		"before the write": {faultproxy.NotPrimary(), 10107, false},
		"after the write":  {faultproxy.NotPrimaryReply(), 11602, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, uri string) {
				s := newStage(t, uri, noRetries)
				s.proxy.On(faultproxy.Command("insert").Nth(1), c.action)
				err := s.insert(t.Context(), "x")
				var failed mongo.ServerError
				if !errors.As(err, &failed) || !failed.HasErrorCode(c.code) || failed.HasErrorLabel("RetryableWriteError") {
					t.Errorf("got %#v", err)
				}
				if got := s.applied(t, "x"); got != c.applied {
					t.Errorf("applied: %v", got)
				}
				if err := s.insert(soon(t, 5*time.Second), "y"); err != nil {
					t.Errorf("the driver does not find its primary again: %v", err)
				}
			})
			t.Run("retried", func(t *testing.T) {
				onEach(t, func(t *testing.T, uri string) {
					s := newStage(t, uri, retries)
					s.proxy.On(faultproxy.Command("insert").Nth(1), c.action)
					if err := s.insert(soon(t, 5*time.Second), "x"); err != nil {
						t.Error(err)
					}
				}, "retryable")
			})
		})
	}
}

func TestMatchersCount(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newStage(t, uri, noRetries)
		inserts := faultproxy.Command("INSERT", "update")
		second := s.proxy.On(inserts.Nth(2), faultproxy.Fail(2))
		late := s.proxy.On(inserts.After(3).Next(2), faultproxy.Fail(3))
		named := s.proxy.On(inserts.Where(func(cmd bson.Raw) bool { return is(cmd, "f") }), faultproxy.Fail(4))
		never := s.proxy.On(faultproxy.Command("delete"), faultproxy.Fail(5))
		var got []int
		for _, id := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			err := s.insert(t.Context(), id)
			code := 0
			var failed mongo.ServerError
			if errors.As(err, &failed) {
				code = failed.ErrorCodes()[0]
			}
			got = append(got, code)
		}
		if want := []int{0, 2, 0, 3, 3, 4, 0}; !slices.Equal(got, want) {
			t.Errorf("codes %v, want %v", got, want)
		}
		if second.Hits() != 1 || late.Hits() != 2 || named.Hits() != 1 || never.Hits() != 0 {
			t.Error(second.Hits(), late.Hits(), named.Hits(), never.Hits())
		}
	})
}

func TestServerGoneAndBack(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(*faultproxy.Proxy){
		"Cut": (*faultproxy.Proxy).Cut, "Silence": (*faultproxy.Proxy).Silence,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, uri string) {
				s := newStage(t, uri, noRetries)
				if err := s.insert(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
				gone(s.proxy)
				if err := s.insert(soon(t, 300*time.Millisecond), "b"); err == nil {
					t.Error("no error")
				}
				s.proxy.Restore()
				s.settle(t)
				if err := s.insert(t.Context(), "c"); err != nil {
					t.Error(err)
				}
				if s.applied(t, "b") || !s.applied(t, "c") {
					t.Error("b was applied, or c was not")
				}
			})
		})
	}
}

func TestDropConnectionsLeavesTheDoorOpen(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newStage(t, uri, noRetries)
		if s.proxy.Connections() == 0 {
			t.Fatal("no connection to drop")
		}
		s.proxy.DropConnections()
		s.settle(t)
	})
}

func TestCloseEndsWhatIsHeld(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newStage(t, uri, noRetries)
		command := s.proxy.On(faultproxy.Command("insert").Nth(1), faultproxy.Hold())
		reply := s.proxy.On(faultproxy.Command("insert").Nth(2), faultproxy.HoldReply())
		for _, rule := range []*faultproxy.Rule{command, reply} {
			go func() { _ = s.insert(soon(t, 5*time.Second), bson.NewObjectID().Hex()) }()
			await(t, rule.Fired(), "something is held")
		}
		begin := time.Now()
		if err := s.proxy.Close(); err != nil { // waits for its goroutines
			t.Error(err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		if n := s.proxy.Connections(); n != 0 {
			t.Errorf("%d connections left", n)
		}
		if err := s.proxy.Close(); err != nil {
			t.Errorf("once more: %v", err)
		}
	})
}
