package engine

import (
	"bufio"
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
)

// TestLineScripts plays testdata/line/*.txt: what happens to one waiter, named me, and what it does next.
// A line has an event and, behind an arrow, the move that follows:
//
//	join exclusive                     -> ask
//	refused held=30s line=a,me         -> sleep 20s..31s
//	offered                            -> ask offered
//	in 4s                              -> pass a
//
// held is how long a holder has left, and 10s*3 one that has 3 permits; still, for how long one that ran out has to
// be seen still; line who waits: x:name, s:name, p3:name, or a name for a writer; name~100s was last seen that long
// ago, name@5s joined that much later than others, and name- has no address.
func TestLineScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/line/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { playLine(t, file) })
	}
}

// A lineScript plays a View.
type lineScript struct {
	t    *testing.T
	view View
	now  moment
}

func playLine(t *testing.T, file string) {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	s := &lineScript{t: t, now: moment(time.Hour)}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		event, want, has := strings.Cut(text, "->")
		s.event(strings.Fields(event))
		if has {
			s.expect(fmt.Sprintf("%s:%d: %s", file, n, text), strings.Fields(want))
		}
	}
	require.NoError(t, lines.Err())
}

func (s *lineScript) event(words []string) {
	switch words[0] {
	case "join":
		mode, limit := store.Place(mark(words[1]) + "::").Mode()
		s.view = View{Mode: mode, Limit: limit, Place: place(mark(words[1])+":me", mode)}
	case "refused":
		s.view.Refused(s.status(words[1:]), s.now.Add(-time.Millisecond), s.now)
	case "read":
		s.view.Read(s.status(words[1:]), s.now)
	case "failed":
		s.view.Failed(s.now, true)
	case "offered":
		s.view.HeardOffer(s.now)
	case "next":
		s.view.HeardNext(s.now)
	case "was-offered": // before it came
		s.view.told = s.now
	case "joined":
		assert.True(s.t, s.view.Joined)
	case "recovered":
		s.view.Recovered(s.now.Add(s.span(words[1])))
	case "look":
		s.view.look = true
	case "outside": // 63 400ms since 1s until 2s
		n, err := strconv.Atoi(words[1])
		require.NoError(s.t, err)
		since, leaves := s.now, moment(0)
		for i := 3; i < len(words); i += 2 {
			if span := s.span(words[i+1]); words[i] == "since" {
				since = s.now.Add(-span)
			} else {
				leaves = s.now.Add(span)
			}
		}
		s.view.Outside(n, s.span(words[2]), since, leaves, s.now)
	case "away":
		s.view.Away()
	case "in":
		s.now = s.now.Add(s.span(words[1]))
	default:
		s.t.Fatalf("unknown event %q", words[0])
	}
}

func mark(word string) string {
	switch word {
	case "exclusive":
		return "x"
	case "shared":
		return "s"
	}
	return word
}

func (s *lineScript) span(text string) time.Duration {
	d, err := time.ParseDuration(text)
	require.NoError(s.t, err)
	return d
}

func place(name string, mode store.Mode) store.Place {
	m, name, found := strings.Cut(name, ":")
	if !found {
		m, name = "x", m
	}
	if bare, silent := strings.CutSuffix(name, "-"); silent {
		return store.Place(m + "::" + bare)
	}
	return store.Place(m + ":" + name + ":" + name)
}

// status makes one from words: held=30s,10s mode=shared line=a,s:b full=2s.
func (s *lineScript) status(words []string) *store.Status {
	at := time.Unix(1_800_000_000, 0).Add(s.now.Sub(0))
	st := &store.Status{Key: "k", Now: at}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "held":
			if st.Mode == "" {
				st.Mode = store.Exclusive
			}
			for i, left := range strings.Split(value, ",") {
				left, weight, _ := strings.Cut(left, "*")
				left, age, found := strings.Cut(left, "/") // how long it has held
				since := at.Add(-time.Minute)
				if found {
					since = at.Add(-s.span(age))
				}
				n, _ := strconv.Atoi(weight)
				st.Holders = append(st.Holders, store.Holder{ID: strconv.Itoa(i), Weight: n, Since: since, ExpireAt: at.Add(s.span(left))})
			}
		case "still":
			st.Mode = store.Exclusive
			st.Holders = append(st.Holders, store.Holder{ID: "still", Since: at.Add(-time.Minute), ExpireAt: at, KnownBy: at.Add(s.span(value))})
		case "mode":
			st.Mode = store.Mode(value)
		case "used":
			st.Used = s.span(value)
		case "freed":
			st.Freed = at.Add(-s.span(value))
		case "full": // of places that all stand for so long
			for i := range store.LineMost {
				st.Line = append(st.Line, store.Waiter{Place: place(fmt.Sprint("w", i), ""), Since: at.Add(-s.span(value)), Seen: at})
			}
		case "line":
			for name := range strings.SplitSeq(value, ",") {
				name, age, old := strings.Cut(name, "~")
				name, later, again := strings.Cut(name, "@")
				name, slow := strings.CutSuffix(name, "!")
				w := store.Waiter{Place: place(name, ""), Since: at.Add(-time.Minute), Seen: at.Add(-10 * time.Second), Slow: slow}
				if again {
					w.Since = at.Add(-s.span(later))
				}
				if name == "me" {
					w.Place = s.view.Place
				}
				if old {
					w.Seen = at.Add(-s.span(age))
				}
				st.Line = append(st.Line, w)
			}
		default:
			s.t.Fatalf("unknown word %q", w)
		}
	}
	return st
}

func (s *lineScript) expect(where string, want []string) {
	m := s.view.Next(s.now)
	switch want[0] {
	case "ask":
		assert.True(s.t, m.Ask, where)
		assert.Zero(s.t, m.Unseen, where)
		assert.Equal(s.t, len(want) > 1, m.Offered, "%s: offered", where)
	case "pass":
		assert.True(s.t, m.Ask, where)
		assert.NotZero(s.t, m.Unseen, where)
	case "sleep":
		assert.False(s.t, m.Ask, where)
		least, most, _ := strings.Cut(want[1], "..")
		if most == "" {
			most = least
		}
		left := m.Until.Sub(s.now)
		assert.GreaterOrEqual(s.t, left, s.span(least), where)
		assert.LessOrEqual(s.t, left, s.span(most)+s.span(most)/500+time.Millisecond, where) // as clocks drift
	default:
		s.t.Fatalf("%s: unknown move", where)
	}
}

// streakOf returns how many handoffs in a row are allowed, one every so often.
func streakOf(every time.Duration) (n int) {
	now := moment(time.Hour)
	var s streak
	for ; n < 100; n++ {
		next, on := s.on(now)
		if !on {
			break
		}
		s, now = next, now.Add(every)
	}
	return n
}

func TestAStreakEndsAfterSixteenHandoffsOrATenthOfASecond(t *testing.T) {
	for every, want := range map[time.Duration]int{0: 16, 6 * time.Millisecond: 16, 10 * time.Millisecond: 11, 100 * time.Millisecond: 2, time.Second: 1} {
		assert.Equal(t, want, streakOf(every), every)
	}
}
