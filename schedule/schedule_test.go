package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
)

func TestFiveProcessesWhoseTimersAreApartRunEachTickOnce(t *testing.T) {
	for _, missed := range []schedule.Missed{schedule.None, schedule.One, schedule.All} {
		for _, takes := range []time.Duration{time.Millisecond, 150 * time.Millisecond, 700 * time.Millisecond} {
			t.Run(fmt.Sprintf("missed %s, %v at work", missed, takes), func(t *testing.T) {
				inRoom(t, func(r *room) { sixtyTicks(r, takes, missed) })
			})
		}
	}
}

// sixtyTicks has five processes, whose timers go off up to 900 ms apart, run each of
// 60 ticks once.
func sixtyTicks(r *room, takes time.Duration, missed schedule.Missed) {
	var all []*process
	for i := range 5 {
		p := r.process(i, schedule.WithJitter(900*time.Millisecond))
		all = append(all, p.add("tick", schedule.Every(time.Second), takes, schedule.OnMissed(missed)).start())
	}
	r.sleep(61*time.Second - time.Millisecond) // late ones included, and no tick more
	for _, p := range all {
		p.end()
	}
	var want []time.Duration
	for i := range 60 {
		want = append(want, time.Duration(i+1)*time.Second)
	}
	r.expect("the fires", r.fires(), want)
	by := map[int]int{}
	for _, run := range r.take() {
		by[run.by]++
	}
	if len(by) < 5 {
		r.Errorf("jitter should let all of them have some: %v", by)
	}
}

// A fire that comes during a run only because that began late is not skipped, and
// what comes during one that outlives its period is, however late it began.
func TestALateTimerCostsNoFire(t *testing.T) {
	for takes, want := range map[time.Duration][]time.Duration{
		300 * time.Millisecond:  seconds(1, 2, 3, 4, 5, 6),
		999 * time.Millisecond:  seconds(1, 2, 3, 4, 5, 6),
		1500 * time.Millisecond: seconds(1, 3, 5),
	} {
		for _, late := range []time.Duration{0, 500 * time.Millisecond, 900 * time.Millisecond} {
			t.Run(fmt.Sprint(takes, " at work, late by ", late), func(t *testing.T) {
				inRoom(t, func(r *room) {
					first := true
					p := r.process(1).add("tick", schedule.Every(time.Second), takes)
					p.plug.set(func(call string) (error, error) {
						if call == "claim" && first {
							first = false
							time.Sleep(late)
						}
						return nil, nil
					})
					p.start()
					r.sleep(6999 * time.Millisecond)
					p.end()
					r.expect("the fires", r.fires(), want)
				})
			})
		}
	}
}

func TestARunNeverBeginsBeforeItsFire(t *testing.T) {
	inRoom(t, func(r *room) {
		p := r.process(1).add("tick", schedule.Every(time.Second), 0).start()
		r.sleep(10 * time.Second)
		p.end()
		for _, run := range r.take() {
			if run.at < run.Fire.Sub(r.begin) {
				r.Errorf("fire %v began at %v", run.Fire.Sub(r.begin), run.at)
			}
		}
	})
}

func TestAFireThatComesDuringARunIsSkipped(t *testing.T) {
	inRoom(t, func(r *room) {
		one := r.process(1).add("long", schedule.Every(time.Second), 2500*time.Millisecond).start()
		late := r.process(2, schedule.WithJitter(900*time.Millisecond)).add("long", schedule.Every(time.Second), 2500*time.Millisecond).start()
		r.sleep(9900 * time.Millisecond)
		one.end()
		late.end()
		r.expect("the fires", r.fires(), seconds(1, 4, 7))
	})
}

func TestOfTheFiresThatComeDuringARunTheLastIsQueued(t *testing.T) {
	inRoom(t, func(r *room) {
		opt := schedule.OnOverlap(schedule.QueueOne)
		one := r.process(1).add("long", schedule.Every(time.Second), 2500*time.Millisecond, opt).start()
		two := r.process(2).add("long", schedule.Every(time.Second), 2500*time.Millisecond, opt).start()
		r.sleep(8900 * time.Millisecond)
		one.end()
		two.end()
		r.expect("the fires", r.fires(), seconds(1, 3, 6, 8))
		for i, run := range r.take() {
			r.expect(fmt.Sprint("run ", i, " begins"), run.at, time.Second+time.Duration(i)*2500*time.Millisecond)
		}
	})
}

func TestAllFiresThatComeDuringARunAreQueuedInOrder(t *testing.T) {
	inRoom(t, func(r *room) {
		opts := []schedule.JobOption{schedule.OnOverlap(schedule.QueueAll), schedule.OnMissed(schedule.All)}
		takes := func(_ context.Context, run schedule.Run) error { // all others are short
			if run.Fire.Equal(r.begin.Add(2 * time.Second)) {
				time.Sleep(3500 * time.Millisecond)
			}
			return nil
		}
		one := r.process(1).job("uneven", schedule.Every(time.Second), takes, opts...).start()
		two := r.process(2).job("uneven", schedule.Every(time.Second), takes, opts...).start()
		r.sleep(7900 * time.Millisecond)
		one.end()
		two.end()
		var fires, at []time.Duration
		for _, run := range r.take() {
			fires, at = append(fires, run.Fire.Sub(r.begin)), append(at, run.at)
		}
		r.expect("the fires, as they began", fires, seconds(1, 2, 3, 4, 5, 6, 7))
		r.expect("begun", at, seconds(1, 2, 5.5, 5.5, 5.5, 6, 7))
	})
}

// A process that was held up, and finds the job at work, has no claim to make.
func TestWhoIsBehindAsksEverMoreRarelyWhileTheJobIsAtWork(t *testing.T) {
	for _, overlap := range []schedule.Overlap{schedule.Skip, schedule.QueueOne, schedule.QueueAll} {
		t.Run(string(overlap), func(t *testing.T) {
			inRoom(t, func(r *room) {
				opts := []schedule.JobOption{schedule.OnMissed(schedule.All), schedule.OnOverlap(overlap)}
				r.process(1).add("job", schedule.Every(time.Second), 9500*time.Millisecond, opts...).start()
				behind := r.process(2).add("job", schedule.Every(time.Second), time.Second, opts...)
				held := false
				behind.plug.set(func(call string) (error, error) {
					if call == "claim" && !held {
						held = true
						time.Sleep(4500 * time.Millisecond)
					}
					return nil, nil
				})
				behind.start()
				r.sleep(9900 * time.Millisecond)
				sent := behind.plug.take()
				if sent["claim"] != 1 || sent["look"] < 2 || sent["look"] > 10 {
					r.Errorf("in the 4 s that it was behind it sent %v", sent)
				}
			})
		})
	}
}

// Who takes over a run begins late, and the next fire comes meanwhile.
func TestAFireThatComesDuringARepeatedRunIsRunToo(t *testing.T) {
	for overlap, want := range map[schedule.Overlap][]time.Duration{
		schedule.Skip:     seconds(2, 2, 4, 6, 8), // the default
		schedule.QueueAll: seconds(2, 2, 4, 6, 8),
	} {
		t.Run(string(overlap), func(t *testing.T) {
			inRoom(t, func(r *room) {
				opts := []schedule.JobOption{
					schedule.OnOverlap(overlap), schedule.OnMissed(schedule.All), schedule.OnDeath(schedule.AtOnce),
					schedule.Lease(mongolock.TTL(1900 * time.Millisecond)),
				}
				dead := r.process(1).add("tick", schedule.Every(2*time.Second), 400*time.Millisecond, opts...).start()
				other := r.process(2).add("tick", schedule.Every(2*time.Second), 400*time.Millisecond, opts...)
				other.plug.set(func(string) (error, error) {
					time.Sleep(time.Millisecond) // a step behind the other
					return nil, nil
				})
				other.start()
				r.sleep(2200 * time.Millisecond)
				dead.plug.die()
				r.sleep(7 * time.Second)
				dead.stop()
				other.end()
				<-dead.over
				r.expect("the fires", r.fires(), want)
			})
		})
	}
}

func TestAQueuedFireRunsThoughItIsOld(t *testing.T) {
	inRoom(t, func(r *room) {
		p := r.process(1).add("long", schedule.Every(time.Hour), 90*time.Minute, schedule.OnOverlap(schedule.QueueOne)).start()
		r.sleep(4*time.Hour + 20*time.Minute)
		p.end()
		var at []time.Duration
		for _, run := range r.take() {
			at = append(at, run.at)
		}
		r.expect("begun", at, []time.Duration{time.Hour, 150 * time.Minute, 4 * time.Hour})
	})
}

func TestRunsMayOverlapWhereThatIsAllowed(t *testing.T) {
	inRoom(t, func(r *room) {
		opt := schedule.OnOverlap(schedule.Allow)
		one := r.process(1).add("long", schedule.Every(time.Second), 2500*time.Millisecond, opt).start()
		two := r.process(2).add("long", schedule.Every(time.Second), 2500*time.Millisecond, opt).start()
		r.sleep(5400 * time.Millisecond)
		r.expect("under way", len(r.state("long").Runs), 3)
		one.end()
		two.end()
		r.expect("the fires", r.fires(), seconds(1, 2, 3, 4, 5))
	})
}

func TestMissedFires(t *testing.T) {
	for missed, want := range map[schedule.Missed][]time.Duration{
		schedule.None: {1 * time.Hour, 2 * time.Hour, 6 * time.Hour},
		schedule.One:  {1 * time.Hour, 2 * time.Hour, 5 * time.Hour, 6 * time.Hour},
		schedule.All:  {1 * time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 5 * time.Hour, 6 * time.Hour},
	} {
		t.Run(string(missed), func(t *testing.T) {
			inRoom(t, func(r *room) {
				opt := schedule.OnMissed(missed)
				p := r.process(1).add("hourly", schedule.Every(time.Hour), time.Minute, opt).start()
				r.sleep(150 * time.Minute)
				p.end() // nobody is there at three, four and five
				r.sleep(165 * time.Minute)
				one := r.process(2).add("hourly", schedule.Every(time.Hour), time.Minute, opt).start()
				two := r.process(3).add("hourly", schedule.Every(time.Hour), time.Minute, opt).start()
				r.sleep(75 * time.Minute)
				one.end()
				two.end()
				r.expect("the fires", r.fires(), want)
			})
		})
	}
}

func TestFiresDuringAnOutageAreMissed(t *testing.T) {
	for missed, want := range map[schedule.Missed][]time.Duration{
		schedule.None: seconds(600, 2400),
		schedule.One:  seconds(600, 1800, 2400),
		schedule.All:  seconds(600, 1200, 1800, 2400),
	} {
		t.Run(string(missed), func(t *testing.T) {
			inRoom(t, func(r *room) {
				p := r.process(1).add("job", schedule.Every(10*time.Minute), time.Second, schedule.OnMissed(missed)).start()
				r.sleep(15 * time.Minute)
				p.plug.set(func(string) (error, error) { return errCut, nil })
				r.sleep(20 * time.Minute)
				p.plug.set(nil)
				r.sleep(7 * time.Minute)
				p.end()
				r.expect("the fires", r.fires(), want)
			})
		})
	}
}

func TestAShortOutageMissesNothing(t *testing.T) {
	inRoom(t, func(r *room) {
		p := r.process(1).add("daily", schedule.Every(24*time.Hour), time.Second).start()
		r.sleep(24*time.Hour - time.Second)
		p.plug.set(func(string) (error, error) { return errCut, nil })
		r.sleep(20 * time.Second)
		p.plug.set(nil)
		r.sleep(40 * time.Second)
		p.end()
		r.expect("the fires", r.fires(), []time.Duration{24 * time.Hour})
	})
}

// dying begins a run at 10 s in a process that is cut off from the store at 12 s.
func dying(r *room, opts ...schedule.JobOption) (dead, other *process) {
	opts = append(opts, schedule.Lease(mongolock.TTL(6*time.Second)))
	dead = r.process(1).job("job", schedule.Every(10*time.Second), func(ctx context.Context, _ schedule.Run) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}, opts...).start()
	r.sleep(9 * time.Second)
	other = r.process(2).add("job", schedule.Every(10*time.Second), time.Second, opts...).start()
	other.plug.set(func(call string) (error, error) {
		if call == "claim" && time.Since(r.begin) < 10001*time.Millisecond {
			time.Sleep(time.Millisecond) // a step behind the other
		}
		return nil, nil
	})
	r.sleep(3 * time.Second)
	dead.plug.die()
	return dead, other
}

func TestAJobWhoseRunnerDiedRunsAgainAtTheNextFire(t *testing.T) {
	inRoom(t, func(r *room) {
		dead, other := dying(r)
		r.sleep(20 * time.Second)
		dead.stop()
		other.end()
		<-dead.over
		var got []string
		for _, run := range r.take() {
			got = append(got, fmt.Sprintf("%v by %d at %v attempt %d", run.Fire.Sub(r.begin), run.by, run.at, run.Attempt))
		}
		r.expect("the runs", got, []string{"10s by 1 at 10s attempt 1", "20s by 2 at 20s attempt 1", "30s by 2 at 30s attempt 1"})
		past := r.state("job").Past
		if last := past[len(past)-1]; last.Outcome != schedule.Died || last.Owner != "process-1" {
			r.Errorf("in the past it stands as %+v", last)
		}
	})
}

func TestARunThatLostItsLeaseIsRepeatedAtOnce(t *testing.T) {
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			inRoom(t, func(r *room) {
				var all []*process
				for i := range processes {
					p := r.process(i).add("job", schedule.Every(time.Hour), 20*time.Second,
						schedule.OnDeath(schedule.AtOnce), schedule.Lease(mongolock.TTL(6*time.Second)))
					p.plug.set(func(call string) (before, after error) {
						if now := time.Since(r.begin); call == "renew" && now < time.Hour+10*time.Second {
							return errCut, nil // all else arrives, the end of the run too
						}
						return nil, nil
					})
					all = append(all, p.start())
				}
				r.sleep(time.Hour + time.Minute)
				for _, p := range all {
					p.end()
				}
				var got []string
				for _, run := range r.take() {
					got = append(got, fmt.Sprintf("%v attempt %d, %v after it", run.Fire.Sub(r.begin), run.Attempt, (run.at-time.Hour).Truncate(time.Second)))
				}
				r.expect("the runs", got, []string{"1h0m0s attempt 1, 0s after it", "1h0m0s attempt 2, 6s after it"})
				past := r.state("job").Past
				if len(past) != 2 || past[0].Outcome != schedule.Done || past[1].Outcome != schedule.Died {
					r.Errorf("the past: %+v", past)
				}
			})
		})
	}
}

func TestAJobWhoseRunnerDiedRunsAgainAtOnce(t *testing.T) {
	inRoom(t, func(r *room) {
		dead, other := dying(r, schedule.OnDeath(schedule.AtOnce))
		r.sleep(20 * time.Second)
		dead.stop()
		other.end()
		<-dead.over
		runs := r.take()
		if len(runs) < 2 || runs[1].by != 2 || runs[1].Attempt != 2 || !runs[1].Fire.Equal(runs[0].Fire) || runs[1].Token() <= runs[0].Token() {
			r.Fatalf("not repeated: %+v", runs)
		}
		// Its last renewal was at 12 s or before, so it ran out by 18 s.
		if at := runs[1].at; at < 16*time.Second || at > 18100*time.Millisecond {
			r.Errorf("repeated at %v", at)
		}
		past := r.state("job").Past
		if last := past[len(past)-1]; last.Outcome != schedule.Died {
			r.Errorf("the first attempt stands as %+v", last)
		}
	})
}

func TestWhatKillsItsProcessIsTriedThreeTimes(t *testing.T) {
	inRoom(t, func(r *room) {
		for i := range 5 {
			p := r.process(i, schedule.WithJitter(time.Second))
			p.job("poison", schedule.Every(time.Minute), func(ctx context.Context, run schedule.Run) error {
				if run.Fire.Sub(r.begin) == time.Minute {
					p.plug.die()
				}
				<-ctx.Done()
				return nil
			}, schedule.OnDeath(schedule.AtOnce), schedule.Lease(mongolock.TTL(time.Second))).start()
		}
		r.sleep(130 * time.Second)
		var of []int
		for _, run := range r.take() {
			of = append(of, int(run.Fire.Sub(r.begin)/time.Minute))
		}
		r.expect("the runs' fires, in minutes", of, []int{1, 1, 1, 2})
	})
}

func TestARunsContextEndsBeforeAnotherCanBegin(t *testing.T) {
	inRoom(t, func(r *room) {
		ended := make(chan time.Duration, 1)
		dead := r.process(1).job("job", schedule.Every(10*time.Second), func(ctx context.Context, run schedule.Run) error {
			<-ctx.Done()
			ended <- time.Since(r.begin)
			if err := run.Lease.Err(); !errors.Is(err, mongolock.ErrLost) {
				r.Errorf("the lease ended with %v", err)
			}
			return nil
		}, schedule.Lease(mongolock.TTL(6*time.Second))).start()
		r.sleep(12 * time.Second)
		dead.plug.die()
		r.sleep(10 * time.Second)
		dead.stop()
		<-dead.over
		until := r.state("job").Runs[0].ExpireAt.Sub(r.begin)
		if at := <-ended; at > until-600*time.Millisecond {
			r.Errorf("its context ended at %v, another could have it from %v", at, until)
		}
	})
}

func TestAClaimWhoseReplyIsLostIsUndoneAndTheFireRunsOnce(t *testing.T) {
	inRoom(t, func(r *room) {
		p := r.process(1).add("job", schedule.Every(10*time.Second), time.Second).start()
		lost := 0
		p.plug.set(func(call string) (error, error) {
			if call == "claim" && lost < 3 {
				lost++
				return nil, errCut
			}
			return nil, nil
		})
		r.sleep(25 * time.Second)
		p.end()
		r.expect("the fires", r.fires(), seconds(10, 20))
		r.expect("undone", p.plug.take()["undo"], 3)
	})
}

func TestAFireWhoseClaimIsLostAndNotUndoneIsTakenUpOnceItRanOut(t *testing.T) {
	inRoom(t, func(r *room) {
		p := r.process(1).add("job", schedule.Every(time.Minute), time.Second, schedule.Lease(mongolock.TTL(5*time.Second))).start()
		lost := false
		p.plug.set(func(call string) (error, error) {
			switch {
			case call == "undo":
				return errCut, nil
			case call == "claim" && !lost:
				lost = true
				return nil, errCut
			}
			return nil, nil
		})
		r.sleep(100 * time.Second)
		p.end()
		r.expect("the fires", r.fires(), seconds(60))
		if at := r.take()[0].at; at < 65*time.Second || at > 80*time.Second {
			r.Errorf("run at %v", at)
		}
	})
}

// While the end of a run cannot be written the job is busy, and no fire is lost for that.
func TestAnEndThatIsWrittenLateCostsNoFire(t *testing.T) {
	for _, missed := range []schedule.Missed{schedule.None, schedule.One, schedule.All} {
		t.Run(string(missed), func(t *testing.T) {
			inRoom(t, func(r *room) {
				p := r.process(1).add("job", schedule.Every(10*time.Second), 9500*time.Millisecond, schedule.OnMissed(missed)).start()
				cut := 0
				p.plug.set(func(call string) (error, error) {
					if call == "finish" && cut < 3 {
						cut++
						return errCut, nil
					}
					return nil, nil
				})
				r.sleep(59 * time.Second)
				p.end()
				r.expect("the fires", r.fires(), seconds(10, 20, 30, 40, 50))
			})
		})
	}
}

func TestTheEndOfARunIsWrittenThoughItsReplyIsLost(t *testing.T) {
	inRoom(t, func(r *room) {
		p := r.process(1).add("job", schedule.Every(10*time.Second), time.Second).start()
		lost := false
		p.plug.set(func(call string) (error, error) {
			if call == "finish" && !lost {
				lost = true
				return nil, errCut
			}
			return nil, nil
		})
		r.sleep(25 * time.Second)
		p.end()
		past := r.state("job").Past
		if len(past) != 2 || past[0].Outcome != schedule.Done || past[1].Outcome != schedule.Done || past[1].Took() != time.Second {
			r.Errorf("the past: %+v", past)
		}
	})
}
