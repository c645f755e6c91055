package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mongolock/mongolock/schedule"
)

func TestTenThousandJobsAreServedByABoundedNumberOfGoroutines(t *testing.T) {
	inRoom(t, func(r *room) {
		before := runtime.NumGoroutine()
		p := r.process(1, schedule.WithWorkers(32))
		var most atomic.Int64
		for i := range 10_000 {
			p.job(fmt.Sprint("job-", i), schedule.Every(time.Minute), func(context.Context, schedule.Run) error {
				n := int64(runtime.NumGoroutine() - before)
				for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
				}
				time.Sleep(10 * time.Millisecond)
				return nil
			})
		}
		p.start()
		r.sleep(30 * time.Second)
		if idle := runtime.NumGoroutine() - before; idle > 8 {
			t.Errorf("%d goroutines between fires", idle)
		}
		r.sleep(60 * time.Second)
		r.expect("the runs", len(r.take()), 10_000)
		// Each worker, the one that takes its place while it leaves, and a few more.
		if most.Load() > 2*32+12 {
			t.Errorf("%d goroutines at work", most.Load())
		}
		r.expect("sent", p.plug.take(), map[string]int{"look": 10, "claim": 10_000, "finish": 10_000})
		p.end()
		r.expect("kept track of", p.Unsettled(), 0)
	})
}

func TestEachProcessSendsOneClaimAFireAndNothingBetween(t *testing.T) {
	inRoom(t, func(r *room) {
		one := r.process(1).add("job", schedule.Every(time.Hour), time.Second).start()
		r.sleep(time.Minute)
		two := r.process(2, schedule.WithJitter(time.Second)).add("job", schedule.Every(time.Hour), time.Second).start()
		r.sleep(time.Minute)
		one.plug.take()
		two.plug.take()
		for hour := 1; hour <= 24; hour++ {
			r.sleep(time.Duration(hour)*time.Hour + time.Minute - time.Since(r.begin))
			sum := map[string]int{}
			for _, p := range []*process{one, two} {
				for call, n := range p.plug.take() {
					sum[call] += n
				}
			}
			// A run of a second in a lease of 30 is not renewed.
			r.expect(fmt.Sprint("hour ", hour), sum, map[string]int{"claim": 2, "finish": 1})
			r.sleep(50 * time.Minute)
			r.expect("between fires", fmt.Sprint(one.plug.take(), two.plug.take()), "map[] map[]") //nolint:dupword // two empty maps
		}
		one.end()
		two.end()
	})
}

func TestAWorkerThatIsAtWorkLeavesWhatIsDueToOthers(t *testing.T) {
	inRoom(t, func(r *room) {
		full := r.process(1, schedule.WithWorkers(1)).add("a", schedule.Every(10*time.Second), 8*time.Second).
			add("b", schedule.Every(10*time.Second), time.Second).start()
		free := r.process(2, schedule.WithJitter(time.Second)).add("b", schedule.Every(10*time.Second), time.Second).start()
		r.sleep(29 * time.Second)
		full.end()
		free.end()
		r.expect("the fires", r.fires(), seconds(10, 10, 20, 20))
	})
}

func TestARunEndsWithRunsContext(t *testing.T) {
	inRoom(t, func(r *room) {
		p := r.process(1).job("job", schedule.Every(time.Minute), func(ctx context.Context, _ schedule.Run) error {
			<-ctx.Done()
			time.Sleep(2 * time.Second) // it takes its time
			return context.Cause(ctx)
		}).start()
		r.sleep(70 * time.Second)
		began := time.Now()
		p.end()
		r.expect("Run waited", time.Since(began), 2*time.Second)
		past := r.state("job").Past
		if len(past) != 1 || past[0].Outcome != schedule.Failed || past[0].Took() != 12*time.Second {
			r.Errorf("the past: %+v", past)
		}
	})
}

func TestARunMayGoOnForTheGrace(t *testing.T) {
	for grace, want := range map[time.Duration]schedule.Outcome{5 * time.Second: schedule.Failed, time.Minute: schedule.Done} {
		inRoom(t, func(r *room) {
			p := r.process(1, schedule.WithGrace(grace)).add("job", schedule.Every(time.Minute), 20*time.Second).start()
			r.sleep(70 * time.Second)
			p.end()
			past := r.state("job").Past
			if len(past) != 1 || past[0].Outcome != want {
				r.Errorf("with a grace of %v: %+v", grace, past)
			}
		})
	}
}

func TestJobsMayComeAndGoWhileItRuns(t *testing.T) {
	inRoom(t, func(r *room) {
		p := r.process(1).start()
		r.sleep(90 * time.Second)
		p.add("job", schedule.Every(time.Minute), time.Second)
		r.sleep(90 * time.Second) // 3:00
		p.Remove("job")
		r.sleep(2 * time.Minute)
		p.add("job", schedule.Every(time.Hour), time.Second)
		r.sleep(time.Hour)
		p.end()
		r.expect("the fires", r.fires(), []time.Duration{2 * time.Minute, 3 * time.Minute, time.Hour})
	})
}

func TestAnotherPlanTakesOverAtOnce(t *testing.T) {
	inRoom(t, func(r *room) {
		p := r.process(1).add("job", schedule.Every(24*time.Hour), time.Second).start()
		r.sleep(25*time.Hour + 10*time.Minute) // its next fire is a day away
		p.end()
		q := r.process(2).add("job", schedule.Every(time.Hour), time.Second).start()
		r.sleep(2 * time.Hour)
		q.end()
		r.expect("the fires", r.fires(), []time.Duration{24 * time.Hour, 26 * time.Hour, 27 * time.Hour})
	})
}

func TestRunRunsOnceAtATimeAndMayRunAgain(t *testing.T) {
	inRoom(t, func(r *room) {
		p := r.process(1).add("job", schedule.Every(time.Minute), time.Second).start()
		r.sleep(time.Second)
		if err := p.Run(r.Context()); !errors.Is(err, schedule.ErrRunning) {
			r.Errorf("a second Run: %v", err)
		}
		r.sleep(time.Minute)
		p.end()
		p.start()
		r.sleep(time.Minute)
		p.end()
		r.expect("the fires", r.fires(), seconds(60, 120))
	})
}

func TestTheObserverIsToldWhatBecomesOfEachFire(t *testing.T) {
	inRoom(t, func(r *room) {
		var got []string
		failed := errors.New("no paper")
		p := r.process(1, schedule.WithObserver(func(e schedule.Event) {
			got = append(got, fmt.Sprint(e.Kind, " ", e.Fire.Sub(r.begin), " ", e.Err))
		}))
		p.job("job", schedule.Every(time.Minute), func(context.Context, schedule.Run) error { return failed }).start()
		r.sleep(61 * time.Second)
		q := r.process(2).add("job", schedule.Every(time.Minute), 0).start()
		p.plug.set(func(call string) (error, error) {
			if call == "claim" {
				time.Sleep(time.Millisecond)
			}
			return nil, nil
		})
		r.sleep(60 * time.Second)
		p.end()
		q.end()
		r.expect("told", got, []string{"began 1m0s <nil>", "ended 1m0s no paper", "passed 2m0s <nil>"})
	})
}

func TestAJobThatOutlivesItsPeriodIsToldOf(t *testing.T) {
	inRoom(t, func(r *room) {
		var told []string
		p := r.process(1, schedule.WithObserver(func(e schedule.Event) {
			if e.Kind == schedule.Skipped {
				told = append(told, fmt.Sprint(e.Run.Fire.Sub(r.begin), " skips up to ", e.Fire.Sub(r.begin)))
			}
		}))
		p.add("long", schedule.Every(time.Second), 2500*time.Millisecond).add("short", schedule.Every(time.Second), 0).start()
		r.sleep(7 * time.Second)
		p.end()
		r.expect("told", told, []string{"1s skips up to 3s", "4s skips up to 6s"})
	})
}

func TestTokensRiseWithFiresAndAttempts(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	last := int64(0)
	for _, run := range []schedule.Run{
		{Fire: at, Attempt: 1}, {Fire: at, Attempt: 2}, {Fire: at, Attempt: 3},
		{Fire: at.Add(time.Millisecond), Attempt: 1}, {Fire: at.AddDate(200, 0, 0), Attempt: 1},
	} {
		if run.Token() <= last || run.Token() == math.MaxInt64 {
			t.Errorf("%v attempt %d: token %d after %d", run.Fire, run.Attempt, run.Token(), last)
		}
		last = run.Token()
	}
}
