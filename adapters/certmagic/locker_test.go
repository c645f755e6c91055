package certmagiclock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	certmagiclock "github.com/mongolock/mongolock/adapters/certmagic"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store/memstore"
)

const (
	issuance = "issue_cert_example.com"
	key      = "certmagic/" + issuance
)

func locker(t testing.TB, locks mongolock.Locker, opts ...mongolock.AcquireOption) *certmagiclock.Locker {
	t.Helper()
	l, err := certmagiclock.NewLocker(locks, opts...)
	require.NoError(t, err)
	l.Logger = slog.New(slog.DiscardHandler)
	return l
}

func TestALockIsHeldByOneProcessUntilItUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		var l []*certmagiclock.Locker // one a process
		for range 2 {
			c := lab.Client(t, s)
			l = append(l, locker(t, c))
		}
		require.NoError(t, l[0].Lock(t.Context(), issuance))
		got, err := l[1].TryLock(t.Context(), issuance)
		assert.NoError(t, err)
		assert.False(t, got, "TryLock of a lock that another process holds")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, l[1].Lock(ctx, issuance), context.DeadlineExceeded)
		assert.ErrorIs(t, l[1].Unlock(t.Context(), issuance), certmagiclock.ErrNotLocked)

		locked := make(chan error, 1)
		go func() { locked <- l[1].Lock(t.Context(), issuance) }()
		time.Sleep(10 * time.Minute) // virtual: longer than any TTL
		assert.Empty(t, locked, "a process took a lock that another one holds")
		assert.NoError(t, l[0].Unlock(ctx, issuance), "under a context that has ended")
		assert.NoError(t, <-locked)
		assert.NoError(t, l[1].Unlock(t.Context(), issuance))
	})
}

func TestTwoCallersOfOneProcessExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker(t, mongolocktest.New(t))
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

// CertMagic unlocks by name. If the lease was lost, another caller of the process must not be
// granted the lock before that: its lease would be released by the first one's Unlock.
func TestAfterALossTheNextCallerOfTheProcessWaitsForUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		var said strings.Builder
		l := locker(t, locks)
		l.Logger = slog.New(slog.NewTextHandler(&said, nil))
		require.NoError(t, l.Lock(t.Context(), issuance))
		locks.Lose(key)

		locked := make(chan error, 1)
		go func() { locked <- l.Lock(t.Context(), issuance) }()
		synctest.Wait()
		assert.Empty(t, locked)
		require.NoError(t, l.Unlock(t.Context(), issuance), "a lock that was lost is unlocked")
		assert.Contains(t, said.String(), "lost while it was held")
		require.NoError(t, <-locked)

		status, err := locks.Inspect(t.Context(), key)
		require.NoError(t, err)
		assert.False(t, status.Free(), "the first caller's Unlock released the second one's lease")
		assert.NoError(t, l.Unlock(t.Context(), issuance))
	})
}

func TestALostLockIsTakenAgainBeforeTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		l := locker(t, locks, mongolock.Note("certificates"))
		assert.ErrorIs(t, l.RenewLockLease(t.Context(), issuance, time.Hour), certmagiclock.ErrNotLocked)
		require.NoError(t, l.Lock(t.Context(), issuance))
		assert.NoError(t, l.RenewLockLease(t.Context(), issuance, time.Hour))

		locks.Lose(key)
		release := locks.Hold(key) // another process obtains the certificate
		assert.ErrorIs(t, l.RenewLockLease(t.Context(), issuance, time.Hour), mongolock.ErrHeld)
		assert.ErrorIs(t, l.RenewLockLease(t.Context(), issuance, time.Hour), mongolock.ErrLost)
		release()
		assert.NoError(t, l.RenewLockLease(t.Context(), issuance, time.Hour))
		status, err := locks.Inspect(t.Context(), key)
		require.NoError(t, err)
		require.Len(t, status.Holders, 1)
		assert.Equal(t, "certificates", status.Holders[0].Note, "the options of the lock that was lost")
		assert.NoError(t, l.Unlock(t.Context(), issuance))
		status, err = locks.Inspect(t.Context(), key)
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
		got, err := l.TryLock(t.Context(), "another")
		assert.False(t, got)
		assert.ErrorIs(t, err, away, "a failure of the database is not a lock that another has")
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
			l := locker(t, locks)
			require.NoError(t, l.Lock(t.Context(), issuance))
			locks.Lose(key)
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

func TestWrongArgumentsAreRefusedByName(t *testing.T) {
	_, err := certmagiclock.NewLocker(nil)
	assert.ErrorContains(t, err, "the locker is nil")
	for _, o := range []mongolock.AcquireOption{mongolock.Shared(), mongolock.OneOf(2), mongolock.TTL(1)} {
		_, err := certmagiclock.NewLocker(mongolocktest.New(t), o)
		assert.ErrorContains(t, err, "certmagiclock: NewLocker")
	}
	assert.Error(t, locker(t, mongolocktest.New(t)).Lock(t.Context(), "\xff"))
}

// Files keep certificates on a disk that all processes see.
type Files struct{ certmagic.FileStorage }

// A Storage has the locks of Locker: its methods stand before those that Files embeds.
type Storage struct {
	*certmagiclock.Locker
	Files
}

func ExampleNewLocker() {
	client, err := mongolock.NewWithStore(memstore.New()) // mongolock.New(collection) between processes
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()
	locker, err := certmagiclock.NewLocker(client, mongolock.Note("edge-3"))
	if err != nil {
		log.Panic(err)
	}
	certmagic.Default.Storage = &Storage{locker, Files{certmagic.FileStorage{Path: "/mnt/certificates"}}}

	ctx := context.Background()
	fmt.Println(certmagic.Default.Storage.Lock(ctx, "issue_cert_example.com"))
	fmt.Println(locker.TryLock(ctx, "issue_cert_example.com"))
	fmt.Println(locker.Unlock(ctx, "issue_cert_example.com"))
	// Output:
	// <nil>
	// false <nil>
	// <nil>
}
