package faultproxy_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

func TestAWriteConcernErrorReachesTheCallerAsOne(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newSetup(t, uri, noRetries)
		rule := s.proxy.On(faultproxy.Command("insert"), faultproxy.WriteConcernError(faultproxy.CodeWriteConcernTimeout))
		var failed mongo.WriteException
		require.ErrorAs(t, s.insert(t.Context(), "x"), &failed)
		require.NotNil(t, failed.WriteConcernError)
		assert.EqualValues(t, faultproxy.CodeWriteConcernTimeout, failed.WriteConcernError.Code)
		await(t, rule.Fired(), "the rule fires")
		assert.True(t, s.applied(t, "x"), "not applied")
	})
}

func TestARetryableWriteConcernErrorIsRetried(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newSetup(t, uri, retries)
		s.proxy.On(faultproxy.Command("insert").Next(1), faultproxy.WriteConcernError(faultproxy.CodeShutdownInProgress))
		assert.NoError(t, s.insert(t.Context(), "x"))
		assert.Equal(t, 2, s.proxy.Count("insert"))
	}, "retryable")
}

func TestNotPrimaryReachesTheCallerAsSuch(t *testing.T) {
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
				s := newSetup(t, uri, noRetries)
				s.proxy.On(faultproxy.Command("insert").Nth(1), c.action)
				var failed mongo.ServerError
				require.ErrorAs(t, s.insert(t.Context(), "x"), &failed)
				assert.True(t, failed.HasErrorCode(c.code), "got %#v", failed)
				assert.False(t, failed.HasErrorLabel("RetryableWriteError"), "got %#v", failed)
				assert.Equal(t, c.applied, s.applied(t, "x"), "applied")
				assert.NoError(t, s.insert(soon(t, 5*time.Second), "y"), "the driver does not find its primary again")
			})
			t.Run("retried", func(t *testing.T) {
				onEach(t, func(t *testing.T, uri string) {
					s := newSetup(t, uri, retries)
					s.proxy.On(faultproxy.Command("insert").Nth(1), c.action)
					assert.NoError(t, s.insert(soon(t, 5*time.Second), "x"))
				}, "retryable")
			})
		})
	}
}

func TestMatchersCount(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, uri string) {
		s := newSetup(t, uri, noRetries)
		inserts := faultproxy.Command("INSERT", "update")
		second := s.proxy.On(inserts.Nth(2), faultproxy.Fail(2))
		late := s.proxy.On(inserts.After(3).Next(2), faultproxy.Fail(3))
		named := s.proxy.On(inserts.Where(func(cmd bson.Raw) bool { return is(cmd, "f") }), faultproxy.Fail(4))
		never := s.proxy.On(faultproxy.Command("delete"), faultproxy.Fail(5))
		var codes []int
		for _, id := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			err := s.insert(t.Context(), id)
			code := 0
			var failed mongo.ServerError
			if errors.As(err, &failed) {
				code = failed.ErrorCodes()[0]
			}
			codes = append(codes, code)
		}
		assert.Equal(t, []int{0, 2, 0, 3, 3, 4, 0}, codes)
		assert.Equal(t, []int{1, 2, 1, 0}, []int{second.Hits(), late.Hits(), named.Hits(), never.Hits()})
	})
}
