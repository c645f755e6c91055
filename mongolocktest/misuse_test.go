package mongolocktest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/mongolocktest"
)

// A recordingT records the failures of a test instead of reporting them.
type recordingT struct {
	testing.TB
	cleanup []func()
	errors  []string
}

type fatal struct{}

func (r *recordingT) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
func (r *recordingT) Failed() bool     { return len(r.errors) > 0 }
func (r *recordingT) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recordingT) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(fatal{})
}

// run runs a test to its end, and returns its failures.
func run(t *testing.T, test func(t testing.TB)) string {
	r := &recordingT{TB: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != (fatal{}) {
				panic(p)
			}
		}()
		test(r)
	}()
	for _, f := range r.cleanup {
		f()
	}
	return strings.Join(r.errors, "\n")
}

func TestAMisuseFailsTheTestAndSaysWhy(t *testing.T) {
	uses := map[string]struct {
		use  func(t testing.TB)
		want string
	}{
		"a wrong option": {
			func(t testing.TB) { mongolocktest.New(t, mongolock.TTL(time.Millisecond)) },
			"TTL(1ms)",
		},
		"Hold of a key that is held": {
			func(t testing.TB) { l := mongolocktest.New(t); l.Hold("k"); l.Hold("k") },
			`Hold("k"): mongolock: "k" is held by somebody else`,
		},
		"Hold of an empty key": {
			func(t testing.TB) { mongolocktest.New(t).Hold("") },
			`Hold(""): mongolock: key is empty`,
		},
		"Lose without a lease": {
			func(t testing.TB) { mongolocktest.New(t).Lose("k") },
			`Lose("k"): the Locker has no lease on it`,
		},
		"Lose after the release": {
			func(t testing.TB) {
				l := mongolocktest.New(t)
				_ = mongolock.Do(t.Context(), l, "k", func(context.Context, *mongolock.Lease) error { return nil })
				l.Lose("k")
			},
			`Lose("k"): the Locker has no lease on it`,
		},
		"a lease that is never released": {
			func(t testing.TB) { _, _ = mongolocktest.New(t).Acquire(t.Context(), "k") },
			`the lease on "k" was not released when the test ended`,
		},
		"a lease of the Locker's Client that is never released": {
			func(t testing.TB) { _, _ = mongolocktest.New(t).Client.Acquire(t.Context(), "k") },
			`the lease on "k" was not released when the test ended`,
		},
	}
	for name, u := range uses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				assert.Contains(t, run(t, u.use), u.want)
			})
		})
	}
}

func TestALeaseThatEndedBeforeTheTestIsNoFailure(t *testing.T) {
	acquire := func(t testing.TB, l *mongolocktest.Locker) *mongolock.Lease {
		lease, err := l.Acquire(t.Context(), "k")
		require.NoError(t, err)
		return lease
	}
	uses := map[string]func(t testing.TB){
		"released":      func(t testing.TB) { _ = acquire(t, mongolocktest.New(t)).Release() },
		"lost":          func(t testing.TB) { l := mongolocktest.New(t); acquire(t, l); l.Lose("k") },
		"detached":      func(t testing.TB) { _, _ = acquire(t, mongolocktest.New(t)).Detach(t.Context()) },
		"client closed": func(t testing.TB) { l := mongolocktest.New(t); acquire(t, l); _ = l.Close() },
		"held by Hold":  func(t testing.TB) { mongolocktest.New(t).Hold("k") },
		"not removed, because the store fails": func(t testing.TB) {
			l := mongolocktest.New(t)
			lease := acquire(t, l)
			l.Fail(errors.New("down"))
			_ = lease.Release()
		},
		"released when its context ends": func(t testing.TB) {
			lease := acquire(t, mongolocktest.New(t))
			ctx := lease.Context(context.Background())
			go func() {
				<-ctx.Done()
				_ = lease.Release()
			}()
		},
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				assert.Empty(t, run(t, use))
			})
		})
	}
}
