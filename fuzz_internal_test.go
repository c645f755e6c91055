package mongolock

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A text is refused as a ticket, or parsed to what it would be written from.
func FuzzATicketIsRefusedOrParsed(f *testing.F) {
	f.Add(ticket{Key: "k", ID: "ID", Token: 7, TTL: time.Minute, Note: "n"}.String())
	f.Add(ticketMark)
	f.Add(ticketMark + "e30")
	f.Add("mongolock2.e30")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parseTicket(text)
		if err != nil {
			return
		}
		twice, err := parseTicket(parsed.String())
		require.NoError(t, err)
		assert.Equal(t, parsed, twice)
	})
}

// Keys and notes that cannot come back byte for byte are refused, and no others.
func FuzzOnlyInvalidKeysAndNotesAreRefused(f *testing.F) {
	for _, s := range []string{"nightly-report", "", "$x", "a.b", "\x00", "🔒", "a/b", " ", "\xff", strings.Repeat("k", 1025)} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, key, note string) {
		badKey := key == "" || len(key) > 1024 || !utf8.ValidString(key)
		badNote := len(note) > 1024 || !utf8.ValidString(note)
		assert.Equal(t, badKey, checkText("key", key, 1, maxKey) != nil, "key %q", key)
		assert.Equal(t, badNote, checkText("note", note, 0, maxNote) != nil, "note %q", note)
	})
}
