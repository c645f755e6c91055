package certmagiclock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	certmagiclock "github.com/mongolock/mongolock/adapters/certmagic"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store/memstore"
)

const issuance = "issue_cert_example.com"

func locker(t testing.TB, locks mongolock.Locker, opts ...certmagiclock.Option) *certmagiclock.Locker {
	t.Helper()
	l, err := certmagiclock.NewLocker(locks, append([]certmagiclock.Option{certmagiclock.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	require.NoError(t, err)
	return l
}

// processes are lockers of several processes that share their locks.
func processes(t testing.TB, n int) (all []*certmagiclock.Locker) {
	t.Helper()
	s := memstore.New()
	for range n {
		c, err := mongolock.NewWithStore(s, mongolock.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		all = append(all, locker(t, c))
	}
	return all
}

func TestALockIsHeldByOneProcessUntilItUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := processes(t, 2)
		require.NoError(t, l[0].Lock(t.Context(), issuance))
		got, err := l[1].TryLock(t.Context(), issuance)
		assert.NoError(t, err)
		assert.False(t, got, "TryLock of a lock that another process holds")

		locked := make(chan error, 1)
		go func() { locked <- l[1].Lock(t.Context(), issuance) }()
		time.Sleep(10 * time.Minute) // virtual: longer than any TTL
		assert.Empty(t, locked, "a process took a lock that another one holds")
		require.NoError(t, l[0].Unlock(t.Context(), issuance))
		assert.NoError(t, <-locked)
		assert.NoError(t, l[1].Unlock(t.Context(), issuance))
		got, err = l[0].TryLock(t.Context(), issuance)
		assert.NoError(t, err)
		assert.True(t, got, "TryLock of a free lock")
		assert.NoError(t, l[0].Unlock(t.Context(), issuance))
	})
}

func TestTwoCallersOfOneProcessExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := processes(t, 1)[0]
		require.NoError(t, l.Lock(t.Context(), issuance))
		got, err := l.TryLock(t.Context(), issuance)
		assert.NoError(t, err)
		assert.False(t, got)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = l.Lock(ctx, issuance)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "locked in this process")
		assert.NoError(t, l.Unlock(t.Context(), issuance))
	})
}

func TestLockGivesUpWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := processes(t, 2)
		require.NoError(t, l[0].Lock(t.Context(), issuance))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, l[1].Lock(ctx, issuance), context.DeadlineExceeded)
		assert.ErrorIs(t, l[1].Unlock(t.Context(), issuance), certmagiclock.ErrNotLocked)
		assert.NoError(t, l[0].Unlock(t.Context(), issuance))
	})
}

func TestUnlockWorksUnderACancelledContext(t *testing.T) {
	l := processes(t, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, l.Lock(ctx, issuance))
	cancel()
	assert.NoError(t, l.Unlock(ctx, issuance))
	assert.ErrorIs(t, l.Unlock(t.Context(), issuance), certmagiclock.ErrNotLocked)
	assert.ErrorIs(t, l.RenewLockLease(t.Context(), issuance, time.Minute), certmagiclock.ErrNotLocked)
}

// CertMagic unlocks by name. If the lease was lost, another caller of the process must not be
// granted the lock before that: its lease would be released by the first one's Unlock.
func TestAfterALossTheNextCallerOfTheProcessWaitsForUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		var said strings.Builder
		l := locker(t, locks, certmagiclock.WithPrefix(""), certmagiclock.WithLogger(slog.New(slog.NewTextHandler(&said, nil))))
		require.NoError(t, l.Lock(t.Context(), issuance))
		locks.Lose(issuance)

		locked := make(chan error, 1)
		go func() { locked <- l.Lock(t.Context(), issuance) }()
		synctest.Wait()
		assert.Empty(t, locked)
		require.NoError(t, l.Unlock(t.Context(), issuance), "a lock that was lost is unlocked")
		assert.Contains(t, said.String(), "lost while it was held")
		require.NoError(t, <-locked)

		status, err := locks.Inspect(t.Context(), issuance)
		require.NoError(t, err)
		assert.False(t, status.Free(), "the first caller's Unlock released the second one's lease")
		assert.NoError(t, l.Unlock(t.Context(), issuance))
	})
}

func TestALostLockIsTakenAgainBeforeTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		l := locker(t, locks, certmagiclock.WithPrefix(""))
		require.NoError(t, l.Lock(t.Context(), issuance))
		assert.NoError(t, l.RenewLockLease(t.Context(), issuance, time.Hour))

		locks.Lose(issuance)
		release := locks.Hold(issuance) // another process obtains the certificate
		assert.ErrorIs(t, l.RenewLockLease(t.Context(), issuance, time.Hour), mongolock.ErrHeld)
		assert.ErrorIs(t, l.RenewLockLease(t.Context(), issuance, time.Hour), mongolock.ErrLost)
		release()
		assert.NoError(t, l.RenewLockLease(t.Context(), issuance, time.Hour))
		status, err := locks.Inspect(t.Context(), issuance)
		require.NoError(t, err)
		assert.False(t, status.Free())
		assert.NoError(t, l.Unlock(t.Context(), issuance))
		status, err = locks.Inspect(t.Context(), issuance)
		require.NoError(t, err)
		assert.True(t, status.Free(), "Unlock released another lease than the one taken again")
	})
}

// CertMagic logs the error of Unlock, and never calls it again.
func TestAfterAnUnlockThatFailedTheNameCanBeLockedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		l := locker(t, locks)
		require.NoError(t, l.Lock(t.Context(), issuance))
		away := errors.New("the database is away")
		locks.Fail(away)
		assert.ErrorIs(t, l.Unlock(t.Context(), issuance), away)
		assert.ErrorIs(t, l.Unlock(t.Context(), issuance), certmagiclock.ErrNotLocked)
		locks.Fail(nil)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // virtual: longer than the TTL
		defer cancel()
		require.NoError(t, l.Lock(ctx, issuance), "one failed Unlock locked the name for ever")
		assert.NoError(t, l.Unlock(t.Context(), issuance))
	})
}

// The lease that RenewLockLease took must not stay behind if Unlock comes at the same time.
func TestAnUnlockDuringARenewalLeavesNothingLocked(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			locks := mongolocktest.New(t)
			l := locker(t, locks, certmagiclock.WithPrefix(""))
			require.NoError(t, l.Lock(t.Context(), issuance))
			locks.Lose(issuance)
			renewed := make(chan struct{})
			go func() { defer close(renewed); _ = l.RenewLockLease(t.Context(), issuance, time.Hour) }()
			require.NoError(t, l.Unlock(t.Context(), issuance))
			<-renewed
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, l.Lock(ctx, issuance))
			assert.NoError(t, l.Unlock(t.Context(), issuance))
		})
	}
}

func TestALockHasTheOptionsOfWith(t *testing.T) {
	client := mongolocktest.New(t)
	l := locker(t, client, certmagiclock.With(mongolock.Note("certificates")), certmagiclock.WithPrefix(""))
	for name, lock := range map[string]func() error{
		"Lock":    func() error { return l.Lock(t.Context(), "Lock") },
		"TryLock": func() error { _, err := l.TryLock(t.Context(), "TryLock"); return err },
		"RenewLockLease": func() error {
			if err := l.Lock(t.Context(), "RenewLockLease"); err != nil {
				return err
			}
			client.Lose("RenewLockLease")
			return l.RenewLockLease(t.Context(), "RenewLockLease", time.Hour)
		},
	} {
		require.NoError(t, lock())
		s, err := client.Inspect(t.Context(), name)
		require.NoError(t, err)
		require.Len(t, s.Holders, 1)
		assert.Equal(t, "certificates", s.Holders[0].Note)
		require.NoError(t, l.Unlock(t.Context(), name))
	}
}

func TestWrongArgumentsAreRefusedByName(t *testing.T) {
	for _, o := range []mongolock.AcquireOption{mongolock.Shared(), mongolock.OneOf(2), mongolock.TTL(1)} {
		_, err := certmagiclock.NewLocker(mongolocktest.New(t), certmagiclock.With(o))
		assert.ErrorContains(t, err, "certmagiclock: With")
	}
	_, err := certmagiclock.New(nil, nil, nil, certmagiclock.WithLogger(nil))
	for _, want := range []string{"the locker is nil", "the collection is nil", "a nil Option", "WithLogger(nil)"} {
		assert.ErrorContains(t, err, want)
	}
	l := processes(t, 1)[0]
	for _, name := range []string{strings.Repeat("a", 2000), "\xff"} {
		assert.Error(t, l.Lock(t.Context(), name))
		_, err := l.TryLock(t.Context(), name)
		assert.Error(t, err)
	}
}

func TestAFailureOfTheDatabaseIsNotALockThatAnotherHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		away := errors.New("the database is away")
		locks.Fail(away)
		defer locks.Fail(nil)
		got, err := locker(t, locks).TryLock(t.Context(), issuance)
		assert.False(t, got)
		assert.ErrorIs(t, err, away)
	})
}

func ExampleNewLocker() {
	client, err := mongolock.NewWithStore(memstore.New()) // mongolock.New(collection) between processes
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()
	locker, err := certmagiclock.NewLocker(client) // embed it in a storage of your own
	if err != nil {
		log.Panic(err)
	}
	ctx := context.Background()
	if err := locker.Lock(ctx, "issue_cert_example.com"); err != nil {
		log.Panic(err)
	}
	fmt.Println(locker.TryLock(ctx, "issue_cert_example.com"))
	fmt.Println(locker.Unlock(ctx, "issue_cert_example.com"))
	// Output:
	// false <nil>
	// <nil>
}

// The note is what people see who look at the lock. Options with which several processes would obtain one
// certificate are refused.
func ExampleWith() {
	ctx := context.Background()
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()
	locker, err := certmagiclock.NewLocker(client, certmagiclock.With(mongolock.Note("edge-3")))
	if err != nil {
		log.Panic(err)
	}
	if err := locker.Lock(ctx, "issue_cert_example.com"); err != nil {
		log.Panic(err)
	}
	status, err := client.Inspect(ctx, "certmagic/issue_cert_example.com")
	fmt.Println(status.Holders[0].Note, err)
	fmt.Println(locker.Unlock(ctx, "issue_cert_example.com"))

	_, err = certmagiclock.NewLocker(client, certmagiclock.With(mongolock.Shared()))
	fmt.Println(err)
	// Output:
	// edge-3 <nil>
	// <nil>
	// certmagiclock: With(Shared()): several processes would obtain one certificate at the same time
}

// Other locks are in the same collection, so the keys of certificates have a prefix.
func ExampleWithPrefix() {
	ctx := context.Background()
	client, err := mongolock.NewWithStore(memstore.New())
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()
	locker, err := certmagiclock.NewLocker(client, certmagiclock.WithPrefix("tls/"))
	if err != nil {
		log.Panic(err)
	}
	if err := locker.Lock(ctx, "issue_cert_example.com"); err != nil {
		log.Panic(err)
	}
	for status, err := range client.List(ctx, "tls/") {
		fmt.Println(status.Key, err)
	}
	fmt.Println(locker.Unlock(ctx, "issue_cert_example.com"))
	// Output:
	// tls/issue_cert_example.com <nil>
	// <nil>
}

// CertMagic is not told that a lock was lost, so that is logged.
func ExampleWithLogger() {
	ctx := context.Background()
	client, err := mongolock.NewWithStore(memstore.New(), mongolock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.LevelKey || a.Key == slog.MessageKey {
			return a
		}
		return slog.Attr{}
	}}))
	locker, err := certmagiclock.NewLocker(client, certmagiclock.WithLogger(logger))
	if err != nil {
		log.Panic(err)
	}
	if err := locker.Lock(ctx, "issue_cert_example.com"); err != nil {
		log.Panic(err)
	}
	if _, err := client.Break(ctx, "certmagic/issue_cert_example.com", "it hangs", 0); err != nil {
		log.Panic(err)
	}
	_ = locker.Unlock(ctx, "issue_cert_example.com")
	// Output: level=WARN msg="certmagiclock: the lock was lost while it was held"
}

func ExampleNew() {
	db, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
	if err != nil {
		log.Panic(err)
	}
	defer db.Disconnect(context.Background())
	client, err := mongolock.New(db.Database("app").Collection("locks"))
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()

	storage, err := certmagiclock.New(client, db.Database("app").Collection("certificates"))
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(storage) // certmagic.Default.Storage = storage
	// Output: mongolock:app.certificates
}
