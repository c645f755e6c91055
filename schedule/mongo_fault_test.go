package schedule_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// The commands of this package, as a proxy tells them apart.
var (
	claimed = findAndModify(func(c bson.Raw) bool { return sets(c, "$inc", "seq") })
	ended   = findAndModify(func(c bson.Raw) bool { return sets(c, "$set", "past.") })
	renewed = findAndModify(func(c bson.Raw) bool { return sets(c, "$max", "runs.") })
)

// lostFor is a TTL: a claim that is not answered is given up after it.
const lostFor = 2 * time.Second

var runEveryFire = []schedule.JobOption{schedule.Each()}

func findAndModify(is func(bson.Raw) bool) faultproxy.Matcher {
	return faultproxy.Command("findAndModify").Where(is)
}

// sets reports whether an update has a field with that prefix under an operator.
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

// proxied is a job's collection, reached through a proxy that injects faults, and directly.
type proxied struct {
	*testing.T
	proxy          *faultproxy.Proxy
	behind, direct jobs.Store
}

func newProxied(t *testing.T, retry bool) *proxied {
	t.Helper()
	if retry {
		testserver.URI(t, "retryable")
	}
	p := &proxied{T: t, proxy: faultproxy.New(t, testserver.URI(t))}
	name := fresh()
	p.direct = schedule.NewMongo(collection(t, name))
	p.behind = schedule.NewMongo(collection(t, name, func(o *options.ClientOptions) { o.ApplyURI(p.proxy.URI()).SetRetryWrites(retry) }))
	return p
}

const often = 300 * time.Millisecond

// run runs a job behind the proxy until it has run that many fires, checks that each ran
// once, and returns them.
func (p *proxied) run(fires int, takes time.Duration, opts ...schedule.JobOption) []time.Time {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), pace.Of(time.Minute))
	defer cancel()
	s, err := schedule.NewWithStore(p.behind, schedule.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(p, err)
	var ran []time.Time
	err = s.Add("job", schedule.Every(often), func(ctx context.Context, run schedule.Run) error {
		if ran = append(ran, run.Due); len(ran) == fires {
			cancel()
		}
		assert.Equal(p, 1, run.Attempt, "%+v ran before", run)
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, append(opts, runEveryFire...)...)
	require.NoError(p, err)
	// Where writes have no numbers, a claim that never arrived is not settled before it
	// would have run out, and Run says so at its end.
	if err := s.Run(ctx); err != nil {
		require.ErrorIs(p, err, mongolock.ErrOutcomeUnknown)
	}
	for i, fire := range ran {
		if i > 0 {
			assert.Equal(p, ran[i-1].Add(often), fire, "the fire after %v", ran[i-1])
		}
	}
	require.GreaterOrEqual(p, len(ran), fires, "runs in the time")
	return ran
}

func (p *proxied) state() jobs.State {
	p.Helper()
	all, err := p.direct.Read(context.Background(), []string{"job"}, jobs.WithPast)
	require.NoError(p, err)
	return all[0]
}

// arrives lets a copy that was held in a socket arrive, and checks that it changes nothing.
func (p *proxied) arrives(stuck *faultproxy.Rule) {
	p.Helper()
	stuck.Release()
	select {
	case <-stuck.Applied():
	case <-time.After(pace.Of(time.Minute)):
		require.FailNow(p, "the copy has not arrived")
	}
	s := p.state()
	assert.Empty(p, s.Runs, "left by the copy")
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
				p := newProxied(t, retry)
				rule := p.proxy.On(claimed.Nth(1), fault())
				p.run(4, 0, schedule.With(mongolock.TTL(pace.Of(2*time.Second))))
				assert.Equal(t, 1, rule.Hits(), "without a lost reply the test shows nothing")
			})
		}
	}
}

// If an undo does nothing, the claim whose reply was lost keeps its fire.
func TestControlMongoAClaimThatIsNotUndoneIsNoticed(t *testing.T) {
	t.Parallel()
	p := newProxied(t, false)
	lost := p.proxy.On(claimed.Nth(2), faultproxy.DropReply())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	s, err := schedule.NewWithStore(undoesNothing{p.behind}, schedule.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	require.NoError(t, s.Add("job", schedule.Every(often), nothing, runEveryFire...))
	require.NoError(t, s.Run(ctx))
	assert.Equal(t, 1, lost.Hits())
	state := p.state()
	assert.Len(t, state.Runs, 1, "the claim that was not undone")
	assert.Len(t, state.Past, 1, "the job goes on though nothing was undone: the test notices nothing")
}

// A copy of a claim waits in a socket until the claim was undone. The server refuses it,
// because its transaction number is older.
func TestMongoAClaimThatArrivesAfterItWasUndoneIsRefused(t *testing.T) {
	t.Parallel()
	p := newProxied(t, true)
	f := newStoreFixture(t, p.behind, lostFor)
	f.job = "job"
	f.register()
	c := f.ask(1)
	c.TTL = lostFor
	stuck := p.proxy.On(claimed.Nth(1), faultproxy.Orphan())
	rest := p.proxy.On(claimed.After(1), faultproxy.DropCommand()) // the driver's further copies
	ctx, cancel := context.WithTimeout(t.Context(), lostFor)
	defer cancel()
	_, err := p.behind.Claim(ctx, c)
	require.Error(t, err, "a claim without an answer")
	require.NotErrorIs(t, err, jobs.ErrNotDue)
	rest.Remove()
	settled, err := p.behind.Undo(t.Context(), c)
	require.NoError(t, err)
	require.True(t, settled)
	p.arrives(stuck)
}

// A claim was refused late, because another process has the job. The refusal may be that of
// the driver's second copy, and the first may still arrive.
func TestMongoACopyOfAClaimThatWasRefusedLateIsRefusedToo(t *testing.T) {
	t.Parallel()
	p := newProxied(t, true)
	rival := newStoreFixture(t, p.direct, time.Second)
	rival.job = "job"
	theirs := rival.ask(1)
	rival.won(theirs)
	c := rival.ask(1)
	_, err := p.behind.Read(t.Context(), []string{"job"}, jobs.WithoutPast) // as Run begins
	require.NoError(t, err)
	stuck := p.proxy.On(claimed.Nth(1), faultproxy.Orphan())
	p.proxy.On(claimed.Nth(2), faultproxy.DelayCommand(1200*time.Millisecond))
	_, err = p.behind.Claim(t.Context(), c)
	require.ErrorIs(t, err, jobs.ErrNotDue, "another has the fire")
	theirs.Back = true
	rival.undo(theirs) // now the fire is free
	p.arrives(stuck)
	rival.won(rival.ask(1))
}

func TestMongoAnEndOrARenewalWhoseReplyIsLostEndsNothing(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t, false)
			renewal := p.proxy.On(renewed.Nth(1), fault())
			end := p.proxy.On(ended.Nth(1), fault())
			// A run of 2.2 s in leases of 6 s is renewed once, at 2 s; and so on a busy machine, with more time.
			ttl := pace.Of(6 * time.Second)
			ran := p.run(2, ttl*11/30, schedule.With(mongolock.TTL(ttl)), schedule.AtMostOnce())
			assert.Equal(t, 1, renewal.Hits(), "lost renewals")
			assert.Equal(t, 1, end.Hits(), "lost ends")
			past := p.state().Past
			require.Len(t, past, 2)
			first := slices.IndexFunc(past, func(r jobs.Run) bool { return r.Due.Equal(ran[0]) })
			require.GreaterOrEqual(t, first, 0, "the past has nothing of %v: %+v", ran[0], past)
			assert.EqualValues(t, schedule.Succeeded, past[first].Outcome)
		})
	}
}
