package cronlock_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/schedule"
)

// robfig/cron takes these, and package schedule refuses them: empty parts of a list, a sign, and a
// range that begins with * (of which robfig/cron ignores the rest).
var refusedOnly = regexp.MustCompile(`(^|[,\s\v\x{85}\pZ]),|,([\s\v\x{85}\pZ]|$)|[+]|[*?]-`)

const robfigs = cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor

// robfig parses an expression in UTC as robfig/cron does.
func robfig(expression string) (s cron.Schedule, err error) {
	defer func() {
		if p := recover(); p != nil { // it panics on some expressions
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	options := robfigs
	if len(strings.Fields(expression)) == 6 {
		options |= cron.Second
	}
	return cron.NewParser(options).Parse("CRON_TZ=UTC " + expression)
}

// compare reports how the two readings of an expression differ; empty if they do not. Of the
// times up to four years ahead both know all.
func compare(expression string, from time.Time) string {
	theirs, wrong := robfig(expression)
	ours := schedule.Cron(expression)
	at := ours.Next(from)
	switch {
	case wrong != nil && !at.IsZero():
		return fmt.Sprintf("robfig/cron refuses it (%v), and it is due at %v", wrong, at)
	case wrong != nil, at.IsZero() && refusedOnly.MatchString(expression):
		return ""
	}
	for range 20 {
		want := theirs.Next(from)
		if want.IsZero() || want.After(from.AddDate(4, 0, 0)) {
			return ""
		}
		if at := ours.Next(from); !at.Equal(want) {
			return fmt.Sprintf("after %v it is due at %v, and for robfig/cron at %v", from, at, want)
		}
		from = want
	}
	return ""
}

var moments = []time.Time{
	time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	time.Date(2024, 2, 28, 23, 59, 59, 999_000_000, time.UTC),
	time.Date(2027, 12, 31, 12, 34, 56, 0, time.UTC),
}

func FuzzAnExpressionMeansWhatItMeansToRobfig(f *testing.F) {
	for _, e := range []string{
		"0 3 * * *", "*/10 * * * *", "5/7 1-5/2 1,15 jan-MAR mon", "0 0 12 ? * 1-5", "0 0 29 2 *", "0 0 31 * 0",
		"@daily", "@midnight", "@annually", "@weekly", "* * * * sun,3", "*/1 */23 */2 * */3", "1,,2 * * * *", "*-5 * * * *", "09 007 * * *",
	} {
		f.Add(e)
	}
	f.Fuzz(func(t *testing.T, e string) {
		if strings.Contains(e, "@every") || strings.Contains(e, "=") || len(e) > 200 {
			return // they count from the time of the call; and zones are compared elsewhere
		}
		for _, from := range moments {
			assert.Empty(t, compare(e, from), "%q", e)
		}
	})
}

// Text made by a fuzzer is rarely an expression. These all are, or nearly.
func TestMadeExpressionsMeanWhatTheyMeanToRobfig(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	valid := 0
	for range 20_000 {
		e := madeUp(draw)
		if !schedule.Cron(e).Next(moments[0]).IsZero() {
			valid++
		}
		if how := compare(e, moments[draw.IntN(len(moments))]); how != "" {
			t.Errorf("%q: %s", e, how)
		}
	}
	assert.Greater(t, valid, 10_000, "expressions that mean something")
}

// madeUp makes an expression, most often a right one.
func madeUp(draw *rand.Rand) string {
	fields := []struct{ least, most int }{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}
	fields = fields[draw.IntN(2):]
	words := make([]string, len(fields))
	for i, f := range fields {
		if words[i] = "*"; draw.IntN(2) == 0 {
			continue
		}
		value := func() string {
			n := f.least + draw.IntN(f.most-f.least+1) + draw.IntN(50)/49 // rarely one too many
			switch {
			case f.most == 6 && n < 7 && draw.IntN(4) == 0:
				return time.Weekday(n).String()[:3]
			case f.most == 12 && n < 13 && draw.IntN(4) == 0:
				return strings.ToLower(time.Month(n).String()[:3])
			}
			return fmt.Sprint(n)
		}
		var parts []string
		for range 1 + draw.IntN(3) {
			part := []string{"*", "?", value(), value(), value() + "-" + value()}[draw.IntN(5)]
			if draw.IntN(3) == 0 {
				part += fmt.Sprint("/", draw.IntN(f.most+2))
			}
			parts = append(parts, part)
		}
		words[i] = strings.Join(parts, ",")
	}
	return strings.Join(words, " ")
}

func TestControlADifferentReadingIsNoticed(t *testing.T) {
	assert.NotEmpty(t, compare("CRON_TZ=Europe/Berlin 0 3 * * *", moments[0]), "robfig/cron takes one zone only")
	assert.Regexp(t, refusedOnly, "1,,2 * * * *")
	assert.NotRegexp(t, refusedOnly, "1,2 * * * *")
}
