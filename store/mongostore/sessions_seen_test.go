package mongostore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/docset"
)

// What is known of a session may be a second old. One with a short TTL is then over by what was
// seen: it is read again. Break removed a holder that its session still kept.
func TestAHolderWhoseSessionWasRenewedIsShownAsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := docset.New(0)
		rival := on(t, set)
		conn, err := set.Client(docset.None)
		require.NoError(t, err)
		client, err := mongolock.New(conn.Database("d").Collection("locks"), mongolock.WithSession(), mongolock.TTL(time.Second))
		require.NoError(t, err)
		defer client.Close()
		lease, err := client.Acquire(t.Context(), "k")
		require.NoError(t, err)
		time.Sleep(2 * time.Second) // it is under a session
		for range 40 {
			time.Sleep(970 * time.Millisecond)
			status, err := rival.Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.Len(t, status.Holders, 1)
			require.NotEmpty(t, status.Holders[0].Session, "the test shows nothing")
			assert.True(t, status.Live(status.Holders[0]), "until %v, at %v", status.Holders[0].ExpireAt, status.Now)
		}
		require.NoError(t, lease.Release())
	})
}
