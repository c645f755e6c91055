package mongolock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
)

func detach(t *testing.T, l *mongolock.Lease) string {
	t.Helper()
	ticket, err := l.Detach(t.Context())
	require.NoError(t, err)
	return ticket
}

func TestATicketStaysGoodAfterAResumeThatWasNeverApplied(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		l := acquire(t, c, "k")
		ticket := detach(t, l)
		b.On(lab.Transfer, lab.Fail(errNet))
		_, err := c.Resume(t.Context(), ticket)
		assert.ErrorIs(t, err, errNet)
		assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		b.On(lab.Transfer, nil)
		time.Sleep(5 * time.Second) // the clean-up is done
		resumed, err := c.Resume(t.Context(), ticket)
		require.NoError(t, err)
		assert.Equal(t, l.Token(), resumed.Token())
		time.Sleep(time.Hour)
		assert.NoError(t, resumed.Err())
	})
}

func TestAResumeWhoseReplyIsLostLeavesTheKeyFree(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		c := newClient(t, b)
		ticket := detach(t, acquire(t, c, "k"))
		b.On(lab.Transfer, lab.LoseReply(errNet))
		_, err := c.Resume(t.Context(), ticket)
		assert.ErrorIs(t, err, mongolock.ErrOutcomeUnknown)
		time.Sleep(time.Second)
		mustBeFree(t, b, "k")
	})
}

func TestADetachThatFailsLeavesTheLeaseAsItWas(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k")
		b.On(lab.Renew, lab.Fail(errNet))
		_, err := l.Detach(t.Context())
		assert.ErrorIs(t, err, errNet)
		b.On(lab.Renew, nil)
		time.Sleep(time.Hour)
		assert.NoError(t, l.Err())
		release(t, l)
		_, err = l.Detach(t.Context())
		assert.ErrorIs(t, err, mongolock.ErrReleased)
	})
}

func TestMinHoldOutlastsATicket(t *testing.T) {
	lab.Test(t, func(t *testing.T, b *lab.Store) {
		l := acquire(t, newClient(t, b), "k", mongolock.MinHold(time.Hour))
		time.Sleep(20 * time.Minute)
		resumed, err := newClient(t, b).Resume(t.Context(), detach(t, l))
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		again, err := newClient(t, b).Resume(t.Context(), detach(t, resumed))
		require.NoError(t, err)
		release(t, again)
		time.Sleep(29 * time.Minute)
		mustBeHeld(t, b, "k")
		time.Sleep(2 * time.Minute)
		mustBeFree(t, b, "k")
	})
}
