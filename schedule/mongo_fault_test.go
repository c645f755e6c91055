package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/faultproxy"
	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/schedule"
)

// The commands of this package, as a proxy tells them apart.
var (
	claimed  = findAndModify(func(c bson.Raw) bool { upsert, _ := c.Lookup("upsert").BooleanOK(); return upsert })
	ended    = findAndModify(func(c bson.Raw) bool { return sets(c, "$set", "past.") })
	renewed  = findAndModify(func(c bson.Raw) bool { return sets(c, "$max", "runs.") })
	asked    = findAndModify(func(c bson.Raw) bool { return !sets(c, "$set", "") && !sets(c, "$unset", "") && !sets(c, "$max", "") })
	lostFor  = 2 * time.Second // a TTL: a claim is given up after it
	everyOne = []schedule.JobOption{schedule.OnMissed(schedule.All), schedule.OnOverlap(schedule.QueueAll)}
)

func findAndModify(is func(bson.Raw) bool) faultproxy.Matcher {
	return faultproxy.Command("findAndModify").Where(is)
}

// sets reports whether an update has a field that begins so under an operator.
func sets(c bson.Raw, operator, prefix string) bool {
	fields, _ := c.Lookup("update", operator).DocumentOK()
	elements, _ := fields.Elements()
	for _, e := range elements {
		if strings.HasPrefix(e.Key(), prefix) {
			return true
		}
	}
	return false
}

// A line is a way to the server that does harm to order, and one that does none.
type line struct {
	*testing.T
	proxy          *faultproxy.Proxy
	behind, direct schedule.Store
}

func newLine(t *testing.T, retry bool) *line {
	t.Helper()
	if retry {
		testserver.URI(t, "retryable")
	}
	l := &line{T: t, proxy: faultproxy.New(t, testserver.URI(t))}
	name := fresh()
	l.direct = schedule.NewMongo(collection(t, name))
	l.behind = schedule.NewMongo(collection(t, name, func(o *options.ClientOptions) { o.ApplyURI(l.proxy.URI()).SetRetryWrites(retry) }))
	return l
}

const often = 300 * time.Millisecond

// run has a job run on a store until so many of its fires are over, and answers
// these; each is checked to have run once.
func (l *line) run(on schedule.Store, fires int, takes time.Duration, opts ...schedule.JobOption) []time.Time {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	s, err := schedule.NewWithStore(on, schedule.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		l.Fatal(err)
	}
	var ran []time.Time
	err = s.Add("job", schedule.Every(often), func(ctx context.Context, run schedule.Run) error {
		if ran = append(ran, run.Fire); len(ran) == fires {
			cancel()
		}
		if run.Attempt != 1 {
			l.Errorf("%+v: it ran before", run)
		}
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, append(opts, everyOne...)...)
	if err != nil {
		l.Fatal(err)
	}
	// Where writes have no numbers, a claim that never arrived is not settled before it
	// would have run out, and Run says so at its end.
	if err := s.Run(ctx); err != nil && !errors.Is(err, mongolock.ErrOutcomeUnknown) {
		l.Fatal(err)
	}
	for i, fire := range ran {
		if i > 0 && !fire.Equal(ran[i-1].Add(often)) {
			l.Errorf("fire %v is followed by %v", ran[i-1], fire)
		}
	}
	if len(ran) < fires {
		l.Fatalf("in a minute it ran %d times", len(ran))
	}
	return ran
}

var faults = map[string]func() faultproxy.Action{
	"reply dropped":                faultproxy.DropReply,
	"reply reset":                  faultproxy.ResetReply,
	"command dropped":              faultproxy.DropCommand,
	"command answered not primary": faultproxy.NotPrimary,
	"interrupted by a step-down":   faultproxy.NotPrimaryReply,
	"write concern error":          func() faultproxy.Action { return faultproxy.WriteConcernError(faultproxy.CodeWriteConcernTimeout) },
}

func TestMongoAClaimWhoseReplyIsLostRunsItsFireOnce(t *testing.T) {
	for name, fault := range faults {
		for _, retry := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, retries %v", name, retry), func(t *testing.T) {
				t.Parallel()
				l := newLine(t, retry)
				rule := l.proxy.On(claimed.Nth(2), fault()) // at the first there is no document yet
				l.run(l.behind, 4, 0, schedule.Lease(mongolock.TTL(2*time.Second)))
				if rule.Hits() != 1 {
					t.Error("nothing was lost: the test shows nothing")
				}
			})
		}
	}
}

// The control: where an undo does nothing, the claim that was lost keeps its fire.
func TestControlMongoAGhostIsSeenWhereNothingIsUndone(t *testing.T) {
	t.Parallel()
	l := newLine(t, false)
	lost := l.proxy.On(claimed.Nth(2), faultproxy.DropReply())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	s, err := schedule.NewWithStore(noWay{l.behind}, schedule.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add("job", schedule.Every(often), nothing, everyOne...); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if s := l.state(); lost.Hits() != 1 || len(s.Runs) != 1 || len(s.Past) != 1 {
		t.Errorf("it goes on though nothing was undone: the test sees no ghosts: %+v", s)
	}
}

func (l *line) state() schedule.State {
	l.Helper()
	all, err := l.direct.Look(context.Background(), []string{"job"})
	if err != nil {
		l.Fatal(err)
	}
	return all[0]
}

// A copy of a claim that is left in a socket until the claim was undone, and its fire
// was run: the server refuses it by its older number.
func TestMongoAClaimThatArrivesAfterItWasUndoneIsRefused(t *testing.T) {
	t.Parallel()
	l := newLine(t, true)
	c := newBench(t, l.behind, lostFor).ask(1)
	c.Job, c.TTL = "job", lostFor
	stuck := l.proxy.On(claimed.Nth(1), faultproxy.Orphan())
	rest := l.proxy.On(claimed.After(1), faultproxy.DropCommand()) // the driver's further copies
	ctx, cancel := context.WithTimeout(t.Context(), lostFor)
	defer cancel()
	if _, err := l.behind.Claim(ctx, c); err == nil || errors.Is(err, schedule.ErrNotDue) {
		t.Fatalf("a claim that nobody answered: %v", err)
	}
	rest.Remove()
	if settled, err := l.behind.Undo(t.Context(), c); err != nil || !settled {
		t.Fatalf("undone: %v, %v", settled, err)
	}
	l.arrives(stuck)
}

// The same of a claim that was refused, as another had the job, but late: its refusal
// may be that of the driver's second copy.
func TestMongoACopyOfAClaimThatWasRefusedLateIsRefusedToo(t *testing.T) {
	t.Parallel()
	l := newLine(t, true)
	rival := newBench(t, l.direct, time.Second)
	rival.job = "job"
	theirs := rival.ask(1)
	rival.won(theirs)
	c := rival.ask(1)
	if _, err := l.behind.Look(t.Context(), []string{"job"}); err != nil { // as Run begins
		t.Fatal(err)
	}
	stuck := l.proxy.On(claimed.Nth(1), faultproxy.Orphan())
	l.proxy.On(claimed.Nth(2), faultproxy.DelayCommand(1200*time.Millisecond))
	if _, err := l.behind.Claim(t.Context(), c); !errors.Is(err, schedule.ErrNotDue) {
		t.Fatalf("of a fire that another has: %v", err)
	}
	rival.undo(theirs) // now the fire is free
	l.arrives(stuck)
	rival.won(rival.ask(1))
}

// arrives has a copy that was left in a socket arrive, and looks whether it did
// anything.
func (l *line) arrives(stuck *faultproxy.Rule) {
	l.Helper()
	stuck.Release()
	select {
	case <-stuck.Applied():
	case <-time.After(time.Minute):
		l.Fatal("the copy has not arrived")
	}
	if s := l.state(); len(s.Runs) != 0 || s.Busy != "" {
		l.Errorf("a ghost: %+v", s)
	}
}

// What SecantusDB answers if the filter begins to match while it looks: applied, and
// no document.
func withoutDocument() faultproxy.Action {
	return faultproxy.EditReply(func(d bson.D) bson.D {
		for i := range d {
			if d[i].Key == "value" {
				d[i].Value = nil
			}
		}
		return d
	})
}

func TestMongoAClaimThatIsAnsweredWithNothingIsAskedFor(t *testing.T) {
	t.Parallel()
	l := newLine(t, false)
	b := newBench(t, l.behind, time.Second)
	rule := l.proxy.On(claimed.Nth(1), withoutDocument())
	c := b.ask(1)
	won := b.won(c)
	if rule.Hits() != 1 || won.Left < long*3/4 || won.Left > long {
		t.Errorf("%d hits, %+v", rule.Hits(), won)
	}
	b.finish(c, won)
	if past := b.state().Past; len(past) != 1 || past[0].ID != c.ID {
		t.Errorf("the past: %+v", past)
	}
	// And if that cannot be found out, it is of unknown outcome, and undone.
	l.proxy.On(claimed.Nth(1), withoutDocument())
	l.proxy.On(asked.Nth(1), withoutDocument())
	c = b.ask(2)
	if _, err := l.behind.Claim(t.Context(), c); err == nil || errors.Is(err, schedule.ErrNotDue) || errors.Is(err, mongolock.ErrHeld) {
		t.Errorf("it was answered %v", err)
	}
	b.undo(c)
	b.won(b.ask(2))
}

func TestMongoAnEndOrARenewalWhoseReplyIsLostEndsNothing(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, false)
			renewal := l.proxy.On(renewed.Nth(1), fault())
			end := l.proxy.On(ended.Nth(1), fault())
			// A run of 2.2 s in leases of 6 is renewed once, at 2 s.
			ran := l.run(l.behind, 2, 2200*time.Millisecond, schedule.Lease(mongolock.TTL(6*time.Second)))
			if renewal.Hits() != 1 || end.Hits() != 1 {
				t.Errorf("%d renewals and %d ends were lost", renewal.Hits(), end.Hits())
			}
			past := l.state().Past
			if first := past[len(past)-1]; !first.Fire.Equal(ran[0]) || first.Outcome != schedule.Done || len(past) != 2 {
				t.Errorf("the past: %+v", past)
			}
		})
	}
}
