//go:build knobs

package trace_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/trace"
)

// A history that is allowed for one reason alone. Without that reason it must be refused.
var altered = []struct {
	seed    uint64
	reason  string
	without func(t *testing.T, b *trace.Behaviour) bool
	step    string
	refused string
}{
	{2, "a refusal was quick by its client's clock, which stood still", answeredSlowly, "nothing more comes", "a slow refusal was not cleaned up"},
}

func TestControlAHistoryThatIsAllowedForOneReasonIsRefusedWithoutIt(t *testing.T) {
	var all []*trace.Behaviour
	of := map[*trace.Behaviour]int{}
	for i, a := range altered {
		as, _, _ := ofLocks.live(t, a.seed, plain)
		all = append(all, as...)
		without, _, _ := ofLocks.live(t, a.seed, plain)
		for _, b := range without {
			if a.without(t, b) {
				of[b] = i
				all = append(all, b)
			}
		}
	}
	found := map[int]bool{}
	for _, v := range ask(t, all) {
		i, is := of[v.Behaviour]
		switch {
		case !is:
			assert.Empty(t, v.Refused, "as it was: %v", v)
		case v.Refused == altered[i].refused && strings.Contains(v.Step.Text, altered[i].step):
			found[i] = true
		}
	}
	for i, a := range altered {
		assert.True(t, found[i], "seed %d is refused if it is not so that %s", a.seed, a.reason)
	}
}

var isAnswer = regexp.MustCompile(`^(<<\d+, "answer", (\d+), FALSE, )\d+>>$`)

// answeredSlowly has each transfer that found nothing answered after two seconds.
func answeredSlowly(t *testing.T, b *trace.Behaviour) (is bool) {
	t.Helper()
	for i, s := range b.Steps {
		if m := isAnswer.FindStringSubmatch(s.Term); m != nil && strings.Contains(s.Text, "transfer") {
			b.Steps[i].Term, is = m[1]+strconv.Itoa(int(2*time.Second/unit))+">>", true
		}
	}
	return is
}

// unit is the precision of a behaviour's times.
const unit = 100 * time.Microsecond
