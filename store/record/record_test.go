package record_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/record"
)

var write = flag.Bool("record.write", false, "write the answers into the scripts")

// Each rule is told by a script: what is called, and what is answered. After "==" begins another key.
func TestTheScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var b strings.Builder
		p := newPlayer()
		for line := range strings.Lines(string(text)) {
			call, _, answered := strings.Cut(line, " -> ")
			switch {
			case strings.HasPrefix(line, "=="):
				p = newPlayer()
				b.WriteString(line)
			case !answered:
				b.WriteString(line)
			default:
				fmt.Fprintf(&b, "%s -> %s\n", call, p.play(t, strings.Fields(call)))
			}
		}
		if *write {
			require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
			continue
		}
		assert.Equal(t, string(text), b.String(), file)
	}
}

// A player calls a key, at a time of its own.
type player struct {
	key        record.Key
	begin, now time.Time
}

func newPlayer() *player {
	begin := time.Date(2026, time.May, 3, 2, 0, 0, 0, time.UTC)
	return &player{begin: begin, now: begin}
}

// play makes one call, whose words are a verb, an ID, and then options: a mode (x, s, p3w2: of
// permits at most three, two at once), a place in line (@1) and times.
func (p *player) play(t *testing.T, words []string) string {
	t.Helper()
	verb, id, rest := words[0], "", words[1:]
	if len(rest) > 0 {
		id, rest = rest[0], rest[1:]
	}
	var answer string
	switch verb {
	case "wait":
		p.now = p.now.Add(p.time(t, id))
		answer = p.at(p.now)
	case "claim":
		g, err := p.key.Claim(p.now, p.claim(t, id, rest))
		answer = p.said(g.Line, err, "granted")
	case "transfer":
		g, err := p.key.Transfer(p.now, ref(id), p.claim(t, rest[0], append([]string{"x"}, rest[1:]...)))
		answer = p.said(g.Line, err, "granted")
	case "renew":
		r, err := p.key.Renew(p.now, store.Renewal{Ref: ref(id), TTL: p.time(t, rest[0])})
		answer = p.said(r.Line, err, fmt.Sprint("renewed, left ", r.Left))
	case "release":
		e := store.ReleaseRequest{Ref: ref(id)}
		for _, word := range rest {
			if of, is := strings.CutPrefix(word, "keep="); is {
				e.Keep = p.time(t, of)
			} else {
				e.Used = p.time(t, strings.TrimPrefix(word, "used="))
			}
		}
		ended, err := p.key.Release(p.now, e)
		answer = p.said(ended.Line, err, fmt.Sprint("released, left ", ended.HoldersLeft))
	case "break":
		answer = p.said(nil, p.key.Break(p.now, id, strings.Trim(rest[0], `"`), len(rest) > 1), "broken")
	case "undo":
		var from *store.Ref
		if len(rest) > 0 {
			r := ref(rest[0])
			from = &r
		}
		p.key.Undo(p.now, ref(id), from)
		answer = "done"
	case "leave":
		p.key.Leave(p.now, "k", store.Place(id))
		answer = "done"
	case "show":
		return p.show()
	default:
		t.Fatalf("no such call: %v", words)
	}
	p.keep(t)
	return answer
}

// keep keeps the key as a store does, as JSON: nothing may get lost.
func (p *player) keep(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(p.key)
	require.NoError(t, err)
	var read record.Key
	require.NoError(t, json.Unmarshal(text, &read))
	require.NoError(t, read.Verify())
	again, err := json.Marshal(read)
	require.NoError(t, err)
	assert.Equal(t, string(text), string(again))
	p.key = read
}

func ref(id string) store.Ref { return store.Ref{Key: "k", ID: id, Mode: store.Exclusive} }

func (p *player) claim(t *testing.T, id string, options []string) *store.Claim {
	t.Helper()
	c := &store.Claim{Ref: ref(id), Limit: 1, TTL: 10 * time.Second, Owner: "of " + id}
	mode := options[0]
	switch {
	case mode == "s":
		c.Mode, c.Limit = store.Shared, 0
	case mode[0] == 'p':
		limit, weight, _ := strings.Cut(mode[1:], "w")
		c.Mode = store.Permits
		c.Limit, _ = strconv.Atoi(limit)
		c.Weight, _ = strconv.Atoi(weight)
	}
	for _, o := range options[1:] {
		switch name, value, _ := strings.Cut(o, "="); {
		case o[0] == '@': // a place says of which mode its claim is
			c.Place = store.Place(mode + "::" + o[1:])
		case name == "ttl":
			c.TTL = p.time(t, value)
		case name == "unseen":
			c.Unseen = p.begin.Add(p.time(t, value))
		case name == "since":
			c.Since = p.begin.Add(p.time(t, value))
		default:
			t.Fatalf("no such option: %s", o)
		}
	}
	return c
}

func (p *player) time(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

func (p *player) at(when time.Time) string { return "at " + when.Sub(p.begin).String() }

func (p *player) said(line []store.Place, err error, yes string) string {
	held, mismatch, broken := (*store.HeldError)(nil), (*store.MismatchError)(nil), (*store.BrokenError)(nil)
	switch {
	case errors.As(err, &held):
		yes = "held"
		if held.Place != "" {
			yes += fmt.Sprintf(", %d ahead", held.Ahead())
		}
		line = held.Waiting(held.Place)
	case errors.As(err, &mismatch):
		return "mismatch: " + string(mismatch.Live)
	case errors.As(err, &broken):
		return fmt.Sprintf("broken: %q", broken.Reason)
	case errors.Is(err, store.ErrGone):
		return "gone"
	case err != nil:
		return "refused: " + err.Error()
	}
	if len(line) > 0 {
		yes += fmt.Sprint(", line ", line)
	}
	return yes
}

// show tells the whole record.
func (p *player) show() string {
	if p.key.Empty() {
		return "nothing"
	}
	s := p.key.Status("k", p.now)
	var all []string
	for _, h := range s.Holders {
		text := fmt.Sprintf("%s until %v", h.ID, h.ExpireAt.Sub(p.begin))
		if !s.Live(h) {
			text += " (over)"
		}
		if h.Released {
			text += " (released)"
		}
		if h.Broken != "" {
			text += fmt.Sprintf(" (broken: %s)", h.Broken)
		}
		all = append(all, text)
	}
	if len(all) > 0 {
		all[0] = string(s.Mode) + " " + all[0]
	}
	if !s.Freed.IsZero() {
		all = append(all, fmt.Sprintf("freed %s after %v", p.at(s.Freed), s.Used))
	}
	for _, w := range s.Line {
		text := fmt.Sprintf("%s seen %s", w.Place, p.at(w.Seen))
		if w.Slow {
			text += " (slow)"
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// Duty 11.
func TestWhatAKeyReturnsSharesNothingWithIt(t *testing.T) {
	p := newPlayer()
	for _, call := range []string{"claim a s", "claim b x @b", "claim c x @c"} {
		p.play(t, strings.Fields(call))
	}
	_, err := p.key.Claim(p.now, p.claim(t, "d", []string{"x", "@d"}))
	var held *store.HeldError
	require.ErrorAs(t, err, &held)
	for what, s := range map[string]store.Status{"the status": p.key.Status("k", p.now), "a refusal": held.Status} {
		s.Line[0].Owner, s.Holders[0].Owner = "changed", "changed"
		assert.Equal(t, "of a", p.key.Holders[0].Owner, what)
		assert.Equal(t, "of b", p.key.Line[0].Owner, what)
	}
}

func TestAHolderIsShownWithWhatItsClaimSaid(t *testing.T) {
	p := newPlayer()
	c := p.claim(t, "a", []string{"p5w2"})
	c.Note, c.Yields = "why", "here"
	_, err := p.key.Claim(p.now, c)
	require.NoError(t, err)
	assert.Equal(t, []store.Holder{{
		ID: "a", Owner: "of a", Note: "why", Since: p.now, ExpireAt: p.now.Add(c.TTL), Yields: "here", Weight: 2,
	}}, p.key.Status("k", p.now).Holders)
}

func TestARenewalEndsWhatAHolderWasMoved(t *testing.T) {
	p := newPlayer()
	p.play(t, []string{"claim", "a", "x"})
	p.key.Holders[0].Moved = time.Second
	p.play(t, []string{"renew", "a", "1s"})
	assert.Zero(t, p.key.Holders[0].Moved)
}

func TestAKeyThatCannotBeJudgedIsForeign(t *testing.T) {
	now := time.Now()
	holder, waiter := record.Holder{ID: "a", ExpireAt: now}, store.Waiter{Place: "x::a", Seen: now}
	for what, k := range map[string]record.Key{
		"no mode":            {Holders: []record.Holder{holder}},
		"another mode":       {Mode: "read", Holders: []record.Holder{holder}},
		"no ID":              {Mode: store.Shared, Holders: []record.Holder{holder, {ExpireAt: now}}},
		"no end":             {Mode: store.Shared, Holders: []record.Holder{holder, {ID: "b"}}},
		"a waiter unseen":    {Line: []store.Waiter{waiter, {Place: "x::b"}}},
		"one without places": {Line: []store.Waiter{waiter, {Seen: now}}},
	} {
		assert.Error(t, k.Verify(), what)
	}
	sound := record.Key{Mode: store.Shared, Holders: []record.Holder{holder}, Line: []store.Waiter{waiter}}
	require.NoError(t, sound.Verify())
	assert.NoError(t, new(record.Key).Verify())
}
