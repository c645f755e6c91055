package grafana_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	promlock "github.com/mongolock/mongolock/adapters/prometheus"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// A lab is a process that goes about its work, and whose work a test disturbs.
type lab struct {
	*testing.T
	ctx      context.Context // ends with the recording
	observer mongolock.Observer
	locks    *mongolocktest.Locker // the locks of the process, whose database may fail
	wg       sync.WaitGroup
	nobody   bool // no candidate can lead
}

var quiet = mongolock.WithLogger(slog.New(slog.DiscardHandler))

func newLab(ctx context.Context, t *testing.T, metrics *promlock.Collector) *lab {
	t.Helper()
	return &lab{T: t, ctx: ctx, observer: metrics, locks: mongolocktest.New(t, mongolock.WithObserver(metrics), quiet)}
}

// end waits for all that the lab has begun, after its context has ended.
func (l *lab) end() {
	l.locks.Fail(nil)
	l.wg.Wait()
}

// every does something at once and then every so often.
func (l *lab) every(d time.Duration, f func()) {
	l.wg.Go(func() {
		for l.ctx.Err() == nil {
			f()
			l.sleep(d)
		}
	})
}

// after does something later, unless the recording is over by then.
func (l *lab) after(d time.Duration, f func()) {
	l.wg.Go(func() {
		if l.sleep(d); l.ctx.Err() == nil {
			f()
		}
	})
}

func (l *lab) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.ctx.Done():
	}
}

// work holds a key for a while, for as long as its lease lasts.
func (l *lab) work(ctx context.Context, locks mongolock.Locker, key string, d time.Duration, opts ...mongolock.AcquireOption) {
	_ = mongolock.Do(ctx, locks, key, func(ctx context.Context, _ *mongolock.Lease) error {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		case <-l.ctx.Done():
		}
		return nil
	}, opts...)
}

// health is what every recording has: workers that share keys, a leader and another
// candidate, a job.
func (l *lab) health() {
	for range 3 {
		l.every(5*time.Second, func() { l.work(l.ctx, l.locks, "shared by workers", 2*time.Second) })
	}
	l.every(time.Minute, func() { l.work(l.ctx, l.locks, "long work", 50*time.Second) })
	if l.nobody {
		lease, err := l.locks.Acquire(l.ctx, "billing") // by an operator, who forgot it
		require.NoError(l, err)
		context.AfterFunc(l.ctx, func() { _ = lease.Release() })
	}
	for range 2 {
		l.wg.Go(func() {
			_ = leader.Run(l.ctx, l.locks, "billing", func(ctx context.Context, _ leader.Term) error { <-ctx.Done(); return ctx.Err() })
		})
	}
	l.job("hourly", time.Minute, func() error { return nil })
}

func (l *lab) job(name string, period time.Duration, f func() error) {
	jobs, err := schedule.InMemory(schedule.WithObserver(l.observer), schedule.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(l, err)
	require.NoError(l, jobs.Add(name, schedule.Every(period), func(context.Context, schedule.Run) error { return f() }))
	l.wg.Go(func() { _ = jobs.Run(l.ctx) })
}

// client makes a client of the process on a store of its own.
func (l *lab) client(s store.Store, o mongolock.Observer) *mongolock.Client {
	client, err := mongolock.NewWithStore(s, mongolock.WithObserver(o), quiet)
	require.NoError(l, err)
	l.wg.Go(func() { <-l.ctx.Done(); _ = client.Close() })
	return client
}

// A faultyStore fails in parts.
type faultyStore struct{ *memstore.Store }

func (faultyStore) Release(_ context.Context, batch []store.Ending) []store.Ended {
	all := make([]store.Ended, len(batch))
	for i := range all {
		all[i].Err = errDown
	}
	return all
}

func (f faultyStore) Unwrap() store.Store { return nil }

// A hangingStore does not answer renewals from some time on.
type hangingStore struct {
	store.Store
	from time.Time
}

func (h hangingStore) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	if time.Now().Before(h.from) {
		return h.Store.Renew(ctx, batch)
	}
	<-ctx.Done()
	all := make([]store.Renewed, len(batch))
	for i := range all {
		all[i].Err = ctx.Err()
	}
	return all
}

// A feedless store has a feed that breaks at once.
type feedless struct{ *memstore.Store }

func (feedless) Watch(context.Context, store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) { yield(store.Notice{}, errDown) }
}

// A slow observer hangs now and then.
type slow struct{ mongolock.StatsObserver }

func (s slow) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	if of.Op == mongolock.OpAcquire {
		time.Sleep(time.Second)
	}
	return s.StatsObserver.Begin(ctx, of)
}

var errDown = errors.New("down")

// troubles are what may happen to a process, by the rules that must fire then.
var troubles = map[string]func(l *lab){
	"MongolockLeaseLost":     outage,
	"MongolockRenewalsStall": outage,
	"MongolockRenewalsFail": func(l *lab) {
		outage(l)
		client := l.client(hangingStore{memstore.New(), time.Now().Add(10 * time.Minute)}, l.observer)
		l.every(time.Second, func() { l.work(l.ctx, client, "k", time.Hour) })
	},
	"MongolockAcquireFails":  outage,
	"MongolockCleanUpsStuck": outage,
	"MongolockJobFails":      func(l *lab) { l.job("failing", 5*time.Minute, func() error { return errDown }) },
	"MongolockWaitTooLong": func(l *lab) {
		l.every(time.Hour, func() { l.work(l.ctx, l.locks, "stuck", time.Hour) })
		l.after(time.Minute, func() { l.work(l.ctx, l.locks, "stuck", 0) })
	},
	"MongolockLeasesNotGivenBack": func(l *lab) {
		client := l.client(faultyStore{memstore.New()}, l.observer)
		l.every(time.Minute, func() { l.work(l.ctx, client, "k", time.Second, mongolock.TTL(time.Hour)) })
	},
	"MongolockNobodyLeads": func(l *lab) { l.nobody = true },
	"MongolockDueTimesMissed": func(l *lab) {
		l.job("too slow", time.Minute, func() error { l.sleep(150 * time.Second); return nil })
	},
	"MongolockFeedDown": func(l *lab) {
		s := feedless{memstore.New()}
		holder, waiter := l.client(s, l.observer), l.client(s, l.observer)
		l.every(time.Hour, func() { l.work(l.ctx, holder, "k", time.Hour) })
		l.after(time.Second, func() { l.work(l.ctx, waiter, "k", 0) })
	},
	"MongolockUnobserved": func(l *lab) {
		client := l.client(memstore.New(), slow{l.observer.(mongolock.StatsObserver)})
		l.every(10*time.Second, func() { l.work(l.ctx, client, "k", time.Second) })
	},
}

// outage is ten minutes without a database. It begins while long work is under way, at a
// moment of its own: at that of a renewal or a grant either of the two could be first.
func outage(l *lab) {
	const during = 25 * time.Second
	l.after(10*time.Minute+during, func() { l.locks.Fail(errDown) })
	l.after(20*time.Minute+during, func() { l.locks.Fail(nil) })
}

func troubleNames() []string { return slices.Sorted(maps.Keys(troubles)) }

// fires tells when, in minutes of the recording, a rule's expression has a result.
func fires(t *testing.T, r *recording, expr string) (minutes []int) {
	t.Helper()
	begin := r.ends.Add(-recordFor)
	for m := 1; m < int(recordFor.Minutes()); m++ {
		if len(r.at(t, expr, begin.Add(time.Duration(m)*time.Minute))) > 0 {
			minutes = append(minutes, m)
		}
	}
	return minutes
}

func TestEveryRuleFiresInTheTroubleThatItIsFor(t *testing.T) {
	for _, rule := range readRules(t) {
		t.Run(rule.Alert, func(t *testing.T) {
			trouble := troubles[rule.Alert]
			require.NotNil(t, trouble, "a trouble to try the rule in")
			synctest.Test(t, func(t *testing.T) {
				minutes := fires(t, record(t, trouble), rule.Expr)
				t.Log("fires in minutes", minutes)
				least := max(1, int(time.Duration(rule.For).Minutes()))
				assert.GreaterOrEqual(t, len(minutes), least, "it has to fire for as long as the rule says")
			})
		})
	}
	assert.Len(t, troubles, len(readRules(t)), "a trouble without a rule")
}

func TestNoRuleFiresWhereAllIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, nil)
		for _, rule := range readRules(t) {
			minutes, running := fires(t, r, rule.Expr), 0
			for i, m := range minutes { // a scrape may meet a release under way: that is what a rule's for is for
				if running++; i > 0 && minutes[i-1] != m-1 {
					running = 1
				}
				assert.LessOrEqual(t, running, int(time.Duration(rule.For).Minutes()), "%s fires in minutes %v", rule.Alert, minutes)
			}
		}
	})
}
