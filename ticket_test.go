package mongolock_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
)

const ticketMark = "mongolock1."

// sealed is a ticket with the fields of a genuine one, changed by with.
func sealed(with map[string]any) string {
	fields := map[string]any{"k": "k", "i": "AN-ID-THAT-NOBODY-MAY-SEE", "t": 7, "d": 30 * time.Second, "n": "a note"}
	maps.Copy(fields, with)
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return ticketMark + base64.RawURLEncoding.EncodeToString(text)
}

func TestABrokenTicketIsRefusedAndNothingIsSent(t *testing.T) {
	whole := sealed(nil)
	broken := map[string]struct{ ticket, says string }{
		"empty":             {"", "not a ticket"},
		"other text":        {"my dog ate it", "not a ticket"},
		"a newer version":   {"mongolock2." + strings.TrimPrefix(whole, ticketMark), "newer version"},
		"the mark alone":    {ticketMark, "broken ticket"},
		"no base64":         {ticketMark + "***", "broken ticket"},
		"padded":            {whole + "=", "broken ticket"},
		"cut short":         {whole[:len(whole)-5], "broken ticket"},
		"twice":             {whole + whole, "broken ticket"},
		"no JSON":           {ticketMark + base64.RawURLEncoding.EncodeToString([]byte("{")), "broken ticket"},
		"another JSON":      {ticketMark + base64.RawURLEncoding.EncodeToString([]byte("[1]")), "broken ticket"},
		"trailing JSON":     {ticketMark + base64.RawURLEncoding.EncodeToString([]byte(`{"k":"k"}{}`)), "broken ticket"},
		"no key":            {sealed(map[string]any{"k": ""}), "key is empty"},
		"a key too long":    {sealed(map[string]any{"k": strings.Repeat("k", 1025)}), "key has 1025 bytes"},
		"a key of a number": {sealed(map[string]any{"k": 1}), "broken ticket"},
		"no ID":             {sealed(map[string]any{"i": ""}), "ID is empty"},
		"no TTL":            {sealed(map[string]any{"d": 0}), "TTL of 0s"},
		"a TTL too short":   {sealed(map[string]any{"d": 99 * time.Millisecond}), "TTL of 99ms"},
		"a TTL too long":    {sealed(map[string]any{"d": 2 * year}), "TTL of 17520h"},
		"a note too long":   {sealed(map[string]any{"n": strings.Repeat("n", 1025)}), "note has 1025 bytes"},
	}
	s := newCountingStore()
	client := connect(s)
	defer client.Close()
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			lease, err := client.Resume(t.Context(), b.ticket)
			mustSay(t, err, "resume", b.says)
			if lease != nil || errors.Is(err, mongolock.ErrLost) {
				t.Errorf("lease %v, error %v", lease, err)
			}
		})
	}
	assert.Zero(t, s.n.Load(), "store calls")
}

func TestATicketOfNothingIsLostAndKeepsItsID(t *testing.T) {
	client := connect(newCountingStore())
	defer client.Close()
	_, err := client.Resume(t.Context(), sealed(nil))
	if !errors.Is(err, mongolock.ErrLost) || strings.Contains(fmt.Sprintf("%v %+v", err, err), "NOBODY-MAY-SEE") {
		t.Error(err)
	}
}

func TestAWrongOptionOfResumeLeavesTheTicketGood(t *testing.T) {
	client := connect(newCountingStore(), mongolock.WithMargin(time.Second))
	defer client.Close()
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

// A ticket comes from outside: whatever it says, Resume answers an error or a
// lease of what it names, and never both nor neither.
func FuzzTicket(f *testing.F) {
	f.Add(sealed(nil))
	f.Add(sealed(map[string]any{"k": "$where", "t": -1}))
	f.Add(sealed(map[string]any{"d": -1}))
	f.Add(sealed(map[string]any{"n": "\ufffd", "x": nil}))
	f.Add(ticketMark)
	f.Add(ticketMark + "bnVsbA") // null
	f.Add(strings.Repeat(ticketMark, 3))
	f.Add("mongolock0.e30")
	f.Add("")

	client := connect(newCountingStore())
	f.Cleanup(func() { client.Close() })
	f.Fuzz(func(t *testing.T, ticket string) {
		lease, err := client.Resume(context.Background(), ticket) // nothing is detached
		if lease != nil || err == nil || !strings.HasPrefix(err.Error(), "mongolock: resume") {
			t.Errorf("lease %v, error %v", lease, err)
		}
	})
}
