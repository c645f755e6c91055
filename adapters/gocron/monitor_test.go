package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	gocronlock "github.com/mongolock/mongolock/adapters/gocron"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store/memstore"
)

// seen collects events.
type seen struct {
	mu     sync.Mutex
	events []gocronlock.Event
}

func (s *seen) tell(e gocronlock.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func (s *seen) kinds() (all []gocronlock.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		all = append(all, e.Kind)
	}
	return all
}

func monitor(t testing.TB) (*gocronlock.Monitor, *seen) {
	t.Helper()
	s := &seen{}
	m, err := gocronlock.NewMonitor(s.tell)
	require.NoError(t, err)
	return m, s
}

// fire runs job once under the scheduler's options, and waits until gocron is idle.
func fire(t testing.TB, job func(context.Context) error, opts ...gocron.SchedulerOption) {
	t.Helper()
	sched, err := gocron.NewScheduler(opts...)
	require.NoError(t, err)
	_, err = sched.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(job), gocron.WithName("report"))
	require.NoError(t, err)
	sched.Start()
	synctest.Wait()
	require.NoError(t, sched.Shutdown())
	synctest.Wait()
}

func nothing(context.Context) error { return nil }

func TestTheMonitorTellsOfARunOnceWithItsTimesAndItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := monitor(t)
		l := locker(t, mongolocktest.New(t), gocronlock.WithMonitor(m))
		failed := errors.New("no paper")
		began := time.Now()
		sched, err := gocron.NewScheduler(append(m.Options(), gocron.WithDistributedLocker(l))...)
		require.NoError(t, err)
		_, err = sched.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
			gocron.NewTask(func() error { time.Sleep(time.Second); return failed }), gocron.WithName("report")) // virtual: the job takes a second
		require.NoError(t, err)
		sched.Start()
		time.Sleep(2 * time.Second) // virtual: until it is over
		require.NoError(t, sched.Shutdown())
		synctest.Wait()
		assert.Equal(t, []gocronlock.Event{{Kind: gocronlock.Ran, Job: "report", Began: began, Ended: began.Add(time.Second), Err: failed}}, s.events)
	})
}

func TestTheMonitorTellsOfARefusalOnceAndWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		m, s := monitor(t)
		opts := append(m.Options(), gocron.WithDistributedLocker(locker(t, locks, gocronlock.WithMonitor(m))))

		release := locks.Hold("report")
		fire(t, nothing, opts...)
		release()
		away := errors.New("the database is away")
		locks.Fail(away)
		fire(t, nothing, opts...)
		locks.Fail(nil)

		require.Equal(t, []gocronlock.Kind{gocronlock.Refused, gocronlock.Refused}, s.kinds())
		assert.ErrorIs(t, s.events[0].Err, mongolock.ErrHeld, "another host has the key")
		assert.ErrorIs(t, s.events[1].Err, away)
	})
}

func TestARefusalThatTheLockerDidNotMakeIsToldWithoutAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		candidate := idle(t)
		elector, err := gocronlock.NewElector(candidate)
		require.NoError(t, err)
		m, s := monitor(t)
		fire(t, nothing, append(m.Options(), gocron.WithDistributedElector(elector))...)
		assert.Equal(t, []gocronlock.Event{{Kind: gocronlock.Refused, Job: "report"}}, s.events)
	})
}

func TestTheMonitorTellsOfALeaseThatWasLostWhileTheJobRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		m, s := monitor(t)
		l := locker(t, locks, gocronlock.WithMonitor(m))
		fire(t, func(context.Context) error { locks.Lose("report"); return nil }, append(m.Options(), gocron.WithDistributedLocker(l))...)
		assert.Equal(t, []gocronlock.Kind{gocronlock.Ran, gocronlock.Lost}, s.kinds())
		assert.ErrorIs(t, s.events[1].Err, mongolock.ErrLost)
	})
}

func TestTheMonitorTellsThatARunWasLeftOutForAnEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := monitor(t)
		sched, err := gocron.NewScheduler(m.Options()...)
		require.NoError(t, err)
		_, err = sched.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(func() { time.Sleep(1500 * time.Millisecond) }), // virtual: longer than its period
			gocron.WithName("report"), gocron.WithSingletonMode(gocron.LimitModeReschedule))
		require.NoError(t, err)
		sched.Start()
		time.Sleep(2750 * time.Millisecond) // virtual: the second tick comes while the first runs
		require.NoError(t, sched.Shutdown())
		synctest.Wait()
		assert.Equal(t, []gocronlock.Kind{gocronlock.Rescheduled, gocronlock.Ran}, s.kinds())
	})
}

func TestANilFunctionOrMonitorIsRefused(t *testing.T) {
	_, err := gocronlock.NewMonitor(nil)
	assert.ErrorContains(t, err, "the function is nil")
	_, err = gocronlock.NewLocker(mongolocktest.New(t), gocronlock.WithMonitor(nil))
	assert.ErrorContains(t, err, "WithMonitor(nil)")
}

func ExampleMonitor() {
	client, err := mongolock.NewWithStore(memstore.New()) // mongolock.New(collection) between processes
	if err != nil {
		log.Panic(err)
	}
	done := make(chan struct{})
	monitor, err := gocronlock.NewMonitor(func(e gocronlock.Event) { // count it, log it
		fmt.Println(e.Job, e.Kind, mongolock.OutcomeOf(e.Err))
		close(done)
	})
	if err != nil {
		log.Panic(err)
	}
	other, err := client.Acquire(context.Background(), "report") // another host runs the job
	if err != nil {
		log.Panic(err)
	}
	defer other.Release()

	locker, err := gocronlock.NewLocker(client, gocronlock.WithMonitor(monitor))
	if err != nil {
		log.Panic(err)
	}
	s, err := gocron.NewScheduler(append(monitor.Options(), gocron.WithDistributedLocker(locker))...)
	if err != nil {
		log.Panic(err)
	}
	_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(func() {}), gocron.WithName("report"))
	if err != nil {
		log.Panic(err)
	}
	s.Start()
	<-done
	// Output: report refused held
}
