package engine_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

const ticketMark = "mongolock1."

// ticketWith returns a ticket with the fields of a genuine one, changed by with.
func ticketWith(with map[string]any) string {
	fields := map[string]any{"k": "k", "i": "AN-ID-THAT-NOBODY-MAY-SEE", "t": 7, "d": 30 * time.Second, "n": "a note"}
	maps.Copy(fields, with)
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return ticketMark + base64.RawURLEncoding.EncodeToString(text)
}

func TestABrokenTicketIsRefusedAndNothingIsSent(t *testing.T) {
	whole := ticketWith(nil)
	broken := map[string]struct{ ticket, says string }{
		"empty":              {"", "not a Detach ticket"},
		"other text":         {"some other text", "not a Detach ticket"},
		"a newer version":    {"mongolock2." + strings.TrimPrefix(whole, ticketMark), "newer version"},
		"the mark alone":     {ticketMark, "broken ticket"},
		"no base64":          {ticketMark + "***", "broken ticket"},
		"padded":             {whole + "=", "broken ticket"},
		"cut short":          {whole[:len(whole)-5], "broken ticket"},
		"twice":              {whole + whole, "broken ticket"},
		"no JSON":            {ticketMark + base64.RawURLEncoding.EncodeToString([]byte("{")), "broken ticket"},
		"another JSON":       {ticketMark + base64.RawURLEncoding.EncodeToString([]byte("[1]")), "broken ticket"},
		"trailing JSON":      {ticketMark + base64.RawURLEncoding.EncodeToString([]byte(`{"k":"k"}{}`)), "broken ticket"},
		"no key":             {ticketWith(map[string]any{"k": ""}), "key is empty"},
		"a key too long":     {ticketWith(map[string]any{"k": strings.Repeat("k", 1025)}), "key has 1025 bytes"},
		"a key of a number":  {ticketWith(map[string]any{"k": 1}), "broken ticket"},
		"no ID":              {ticketWith(map[string]any{"i": ""}), "ID is empty"},
		"no TTL":             {ticketWith(map[string]any{"d": 0}), "TTL of 0s"},
		"a TTL too short":    {ticketWith(map[string]any{"d": 99 * time.Millisecond}), "TTL of 99ms"},
		"a TTL too long":     {ticketWith(map[string]any{"d": 2 * year}), "TTL of 17520h"},
		"a MinHold below 0":  {ticketWith(map[string]any{"h": -1}), "MinHold of -1ns"},
		"a MinHold too long": {ticketWith(map[string]any{"h": 2 * year}), "MinHold of 17520h"},
		"a note too long":    {ticketWith(map[string]any{"n": strings.Repeat("n", 1025)}), "note has 1025 bytes"},
	}
	s := lab.New(memstore.New())
	client := newClient(t, s)
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			lease, err := client.Resume(t.Context(), b.ticket)
			mustSay(t, err, "resume", b.says)
			assert.Nil(t, lease)
			assert.NotErrorIs(t, err, mongolock.ErrLost)
		})
	}
	assert.Zero(t, s.Count(), "store calls")
}

func TestATicketThatNamesNoHolderIsLostAndItsIDStaysSecret(t *testing.T) {
	client := newClient(t, memstore.New())
	_, err := client.Resume(t.Context(), ticketWith(nil))
	assert.ErrorIs(t, err, mongolock.ErrLost)
	assert.NotContains(t, fmt.Sprintf("%v %+v", err, err), "NOBODY-MAY-SEE")
}

func TestAWrongOptionOfResumeLeavesTheTicketGood(t *testing.T) {
	client := newClient(t, memstore.New(), mongolock.WithMargin(time.Second))
	ticket, err := acquire(t, client, "k").Detach(t.Context())
	require.NoError(t, err)
	_, err = client.Resume(t.Context(), ticket, mongolock.TTL(time.Millisecond))
	mustSay(t, err, "TTL(1ms)")
	_, err = client.Resume(t.Context(), ticket, mongolock.TTL(time.Second))
	mustSay(t, err, "WithMargin(1s)", "half the TTL of 1s")
	_, err = client.Resume(t.Context(), ticket, nil)
	mustSay(t, err, "nil")

	lease, err := client.Resume(t.Context(), ticket)
	require.NoError(t, err)
	assert.NoError(t, lease.Release())
}

// A ticket comes from outside the process. Nothing is detached here, so Resume must return
// an error and no lease, whatever the ticket says.
func FuzzTicket(f *testing.F) {
	f.Add(ticketWith(nil))
	f.Add(ticketWith(map[string]any{"k": "$where", "t": -1}))
	f.Add(ticketWith(map[string]any{"d": -1}))
	f.Add(ticketWith(map[string]any{"n": "\ufffd", "x": nil}))
	f.Add(ticketMark)
	f.Add(ticketMark + "bnVsbA") // null
	f.Add(strings.Repeat(ticketMark, 3))
	f.Add("mongolock0.e30")
	f.Add("")

	client := connect(memstore.New())
	f.Cleanup(func() { client.Close() })
	f.Fuzz(func(t *testing.T, ticket string) {
		lease, err := client.Resume(context.Background(), ticket)
		assert.Nil(t, lease)
		require.Error(t, err)
		assert.Regexp(t, "^mongolock: resume", err.Error())
	})
}

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

// endsAfter is a context that ends when its Err was asked a few times.
type endsAfter struct {
	context.Context
	asked atomic.Int32
	after int32
}

func (c *endsAfter) Err() error {
	if c.asked.Add(1) > c.after {
		return context.DeadlineExceeded
	}
	return nil
}

func TestALeaseWhoseDetachFailedGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for after := range int32(6) {
			c := newClient(t, memstore.New())
			l := acquire(t, c, "k")
			time.Sleep(time.Minute) // virtual: some renewals
			if _, err := l.Detach(&endsAfter{Context: t.Context(), after: after}); err == nil {
				continue
			}
			time.Sleep(10 * time.Minute)
			assert.NoError(t, l.Err(), "after %d looks at the context", after)
			release(t, l)
		}
	})
}
