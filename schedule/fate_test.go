package schedule_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs/jobstest"
)

// The reply to process 1's claim of 1:00 is lost, and its connection is back at 1:28. Process 2 runs 1:20 from
// 1:20 to 1:35. Not Beside: never two runs of the job at a time, and tokens rise from run to run.
func TestAClaimThatIsFoundLateRunsBesideNoOther(t *testing.T) {
	inCluster(t, func(c *cluster) {
		opts := []schedule.JobOption{schedule.AtMostOnce(), schedule.With(mongolock.TTL(10 * time.Second))}
		type span struct {
			due, from, to time.Duration
			token         int64
		}
		var spans []span
		fn := func(_ context.Context, r schedule.Run) error {
			from := time.Since(c.begin)
			time.Sleep(15 * time.Second)
			c.mu.Lock()
			defer c.mu.Unlock()
			spans = append(spans, span{r.Due.Sub(c.begin), from, time.Since(c.begin), r.Token()})
			return nil
		}
		one := c.process(1).job("job", schedule.Every(20*time.Second), fn, opts...)
		two := c.process(2).job("job", schedule.Every(20*time.Second), fn, opts...)
		one.link.Fail(losesAClaim(c, 88*time.Second))
		two.link.Delay(50 * time.Millisecond) // so process 1 is the first
		one.start()
		two.start()
		c.until(3 * time.Minute)
		one.end()
		two.end()
		for i, a := range spans {
			for _, b := range spans[i+1:] {
				assert.False(t, a.from < b.to && b.from < a.to, "two runs at a time: %+v and %+v", a, b)
				assert.Equal(t, a.from < b.from, a.token < b.token, "tokens do not rise: %+v %+v", a, b)
			}
		}
	})
}

// Beside, one process. Its connection is gone for 40 s when a run ends. That run stays in the document for ever:
// it is neither repeated nor entered as died (State.Runs shows it). After a restart a day later it runs again.
func TestARunWhoseEndCouldNotBeWrittenIsSettledSoon(t *testing.T) {
	inCluster(t, func(c *cluster) {
		opts := []schedule.JobOption{schedule.Beside(), schedule.With(mongolock.TTL(10 * time.Second))}
		one := c.process(1).add("job", schedule.Every(time.Minute), 5*time.Second, opts...)
		one.link.Fail(func(string) (before, after error) {
			if at := time.Since(c.begin); at > 2*time.Minute+2*time.Second && at < 2*time.Minute+42*time.Second {
				return jobstest.ErrCut, nil
			}
			return nil, nil
		})
		one.start()
		c.until(24 * time.Hour)
		left := c.state("job").Runs
		for _, r := range left {
			assert.Greater(t, r.ExpireAt.Sub(c.begin), 23*time.Hour, "the run of %v is in the document still", r.Due.Sub(c.begin))
		}
		one.end()
		c.took()
		two := c.process(2).add("job", schedule.Every(time.Minute), 5*time.Second, opts...).start()
		c.until(24*time.Hour + 2*time.Minute)
		two.end()
		for _, r := range c.took() {
			assert.Greater(t, r.Due.Sub(c.begin), 23*time.Hour, "a day late: the run of %v, attempt %d", r.Due.Sub(c.begin), r.Attempt)
		}
	})
}

// The reply to process 1's claim of 1:00 is lost (the claim was applied), and its connection is back 15 s later.
// Meanwhile process 2 has claimed 1:10 beside it. Process 1 then undoes its claim: 1:00 neither runs nor is told.
func TestAClaimThatIsUndoneLateKeepsItsDueTime(t *testing.T) {
	for name, opts := range map[string][]schedule.JobOption{"default": nil, "each": {schedule.Each()}} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				told := 0
				events := schedule.WithEvents(func(e schedule.Event) {
					if e.Kind == schedule.Dropped {
						told += e.Count
					}
				})
				opts := append(opts, schedule.Beside(), schedule.With(mongolock.TTL(30*time.Second)))
				one := c.process(1, events).add("job", schedule.Every(10*time.Second), time.Second, opts...)
				two := c.process(2, events).add("job", schedule.Every(10*time.Second), time.Second, opts...)
				one.link.Fail(losesAClaim(c, 75*time.Second))
				two.link.Delay(50 * time.Millisecond) // so process 1 is the first
				one.start()
				two.start()
				c.until(5 * time.Minute)
				one.end()
				two.end()
				t.Log(c.fires(), told)
				assert.Contains(t, c.fires(), time.Minute, "the due time of 1:00 neither ran nor was told (%d)", told)
			})
		})
	}
}

// "Each due time that will not run is told once." No process is up at 10:00 and 15:00. One comes at 16:00 and claims
// 15:00, which drops 10:00; the reply to that claim is lost, and the connection for 15 s. 15:00 runs, 10:00 is not told.
func TestWhatAClaimWithoutAReplyHasDroppedIsTold(t *testing.T) {
	inCluster(t, func(c *cluster) {
		opts := []schedule.JobOption{schedule.With(mongolock.TTL(10 * time.Second))}
		one := c.process(1).add("job", schedule.Every(5*time.Minute), time.Second, opts...).start()
		c.until(7 * time.Minute)
		one.end()
		c.until(16 * time.Minute)
		told := 0
		two := c.process(2, schedule.WithEvents(func(e schedule.Event) {
			if e.Kind == schedule.Dropped {
				told += e.Count
			}
		})).add("job", schedule.Every(5*time.Minute), time.Second, opts...)
		claims := 0
		two.link.Fail(func(call string) (before, after error) {
			if call == "claim" {
				claims++
			}
			switch at := time.Since(c.begin); {
			case call == "claim" && claims == 1:
				return nil, jobstest.ErrCut
			case claims > 0 && at < 16*time.Minute+15*time.Second:
				return jobstest.ErrCut, nil
			}
			return nil, nil
		})
		two.start()
		c.until(22 * time.Minute)
		two.end()
		assert.Equal(t, seconds(300, 900, 1200), c.fires())
		assert.Equal(t, 1, told, "10:00 did not run: how often it was told")
	})
}

// "A due time of which three attempts have died is given up"; a run that was stopped does not count. A run of 30 min is
// stopped by three deploys, and then its process dies, once. With Keep(10) and Keep(2) it is repeated; with
// Keep(1) it is given up, as the past has forgotten the stops.
func TestStopsDoNotCountAsDeathsHoweverShortThePastIs(t *testing.T) {
	for _, keep := range []int{10, 2, 1} {
		inCluster(t, func(c *cluster) {
			opts := []schedule.JobOption{schedule.Keep(keep), schedule.With(mongolock.TTL(10 * time.Second))}
			dropped := 0
			start := func(nr int) *process {
				return c.process(nr, schedule.WithEvents(func(e schedule.Event) {
					if e.Kind == schedule.Dropped {
						dropped += e.Count
					}
				})).add("job", schedule.Every(24*time.Hour), 30*time.Minute, opts...).start()
			}
			c.until(23 * time.Hour)
			for nr := range 3 { // three deploys
				p := start(nr)
				c.until(24*time.Hour + time.Duration(nr+1)*5*time.Minute)
				p.end()
			}
			p := start(3)
			c.until(24*time.Hour + 20*time.Minute)
			over := make(chan struct{})
			p.link.Fail(func(string) (error, error) { <-over; return jobstest.ErrCut, nil }) // it dies
			q := start(4)
			c.until(26 * time.Hour)
			q.end()
			close(over)
			p.stop()
			<-p.over
			runs := c.took()
			last := runs[len(runs)-1]
			assert.Equal(t, 5, last.Attempt, "Keep(%d): attempts; and %d due times were dropped", keep, dropped)
		})
	}
}

// MaxLate(time.Minute): "drops a due time at which the job could not begin within d, for whatever reason". No process
// is up at 10:00. One comes at 12:00, claims it, tells that it is dropped, and its connection is gone for 15 s before
// it has recorded that. Then it runs the due time after all.
func TestADueTimeThatWasToldAsTooLateDoesNotRun(t *testing.T) {
	inCluster(t, func(c *cluster) {
		opts := []schedule.JobOption{schedule.MaxLate(time.Minute), schedule.With(mongolock.TTL(10 * time.Second))}
		one := c.process(1).add("job", schedule.Every(5*time.Minute), time.Second, opts...).start()
		c.until(7 * time.Minute)
		one.end()
		c.until(12 * time.Minute)
		told := 0
		two := c.process(2, schedule.WithEvents(func(e schedule.Event) {
			if e.Kind == schedule.Dropped {
				told += e.Count
			}
		})).add("job", schedule.Every(5*time.Minute), time.Second, opts...)
		two.link.Fail(func(call string) (before, after error) {
			if at := time.Since(c.begin); call != "claim" && call != "read" && at < 12*time.Minute+15*time.Second {
				return jobstest.ErrCut, nil
			}
			return nil, nil
		})
		two.start()
		c.until(20*time.Minute + 30*time.Second)
		two.end()
		for _, r := range c.took() {
			assert.LessOrEqual(t, r.at-r.Due.Sub(c.begin), time.Minute, "due at %v, attempt %d, began at %v (and %d due times were told as dropped)", r.Due.Sub(c.begin), r.Attempt, r.at, told)
		}
	})
}

// A process with the new plan has read the job (and was up for an hour). It is down at the first due time
// of that plan, and up again ten minutes later. doc.go: "no night is lost"; and of a change of plan: "the due
// times before a process with the new plan has read the job are those of the old plan". This one came after.

func TestADueTimeOfANewPlanRunsAlthoughNoProcessWasUp(t *testing.T) {
	for name, opts := range map[string][]schedule.JobOption{"default": nil, "each": {schedule.Each()}} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				old := c.process(1).add("job", schedule.Cron("0 3 * * *"), time.Second, opts...).start()
				c.until(4 * time.Hour) // it ran at 3:00
				old.end()
				two := c.process(2).add("job", schedule.Cron("0 5 * * *"), time.Second, opts...).start()
				c.until(4*time.Hour + 50*time.Minute)
				two.end() // a restart of ten minutes over 5:00
				c.until(5*time.Hour + 10*time.Minute)
				told := 0
				three := c.process(3, schedule.WithEvents(func(e schedule.Event) {
					if e.Kind == schedule.Dropped {
						told += e.Count
					}
				})).add("job", schedule.Cron("0 5 * * *"), time.Second, opts...).start()
				c.until(30 * time.Hour)
				three.end()
				fires := c.fires()
				t.Log(fires, "told", told)
				assert.Contains(t, fires, 5*time.Hour, "the due time of 5:00 neither ran nor was told (told: %d)", told)
			})
		})
	}
}

func TestAnAtThatWasMovedRunsAlthoughNoProcessWasUp(t *testing.T) {
	inCluster(t, func(c *cluster) {
		old := c.process(1).add("job", schedule.At(c.begin.Add(3*time.Hour)), time.Second).start()
		c.until(time.Hour)
		old.end()
		two := c.process(2).add("job", schedule.At(c.begin.Add(5*time.Hour)), time.Second).start()
		c.until(4*time.Hour + 50*time.Minute)
		two.end()
		c.until(5*time.Hour + 10*time.Minute)
		three := c.process(3).add("job", schedule.At(c.begin.Add(5*time.Hour)), time.Second).start()
		c.until(30 * time.Hour)
		three.end()
		assert.Contains(t, c.fires(), 5*time.Hour)
	})
}

// A plan changes from every 20 minutes to every 30, and for some hours an old process and a new one run side by side.
// Both have read the job at 0:00. A run takes 25 minutes, so each due time waits for a run, or is dropped and told.
func TestNoDueTimeIsLostBetweenTwoPlans(t *testing.T) {
	for name, opts := range map[string][]schedule.JobOption{"default": nil, "each": {schedule.Each()}, "beside, late": {schedule.Beside()}} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				told := map[time.Duration]int{}
				count := 0
				events := schedule.WithEvents(func(e schedule.Event) {
					if e.Kind == schedule.Dropped {
						c.mu.Lock()
						defer c.mu.Unlock()
						count += e.Count
						told[e.First.Sub(c.begin)]++
						told[e.Due.Sub(c.begin)]++
					}
				})
				opts := append(opts, schedule.With(mongolock.TTL(30*time.Second)))
				takes := 25 * time.Minute
				if name == "beside, late" {
					takes = time.Second
				}
				one := c.process(1, events).add("job", schedule.Every(20*time.Minute), takes, opts...)
				two := c.process(2, events).add("job", schedule.Every(30*time.Minute), takes, opts...)
				if name == "beside, late" {
					two.link.Fail(func(call string) (before, after error) {
						if at := time.Since(c.begin); at > 29*time.Minute && at < 41*time.Minute {
							return jobstest.ErrCut, nil
						}
						return nil, nil
					})
				}
				one.start()
				c.sleep(time.Second)
				two.start()
				c.until(5 * time.Hour)
				one.end()
				c.until(8 * time.Hour)
				two.end()
				fires := map[time.Duration]bool{}
				for _, f := range c.fires() {
					fires[f] = true
				}
				t.Log(c.fires(), told, count)
				for due := 30 * time.Minute; due < 7*time.Hour; due += 30 * time.Minute {
					assert.True(t, fires[due] || told[due] > 0, "the due time of %v by the new plan neither ran nor was told", due)
				}
			})
		})
	}
}

// losesAClaim cuts a process off from the first minute until then; its claim of that minute is applied.
func losesAClaim(c *cluster, until time.Duration) func(call string) (before, after error) {
	return func(call string) (before, after error) {
		switch at := time.Since(c.begin); {
		case at < time.Minute || at > until:
			return nil, nil
		case call == "claim" && at < 61*time.Second:
			return nil, jobstest.ErrCut // applied, the reply is lost
		}
		return jobstest.ErrCut, nil
	}
}

// Two processes do not know what became of their claims of one due time. The first one's was applied, and
// is given back when the second has seen it; then the first dies.
func TestADueTimeThatIsGivenBackAfterAnUnknownClaimRuns(t *testing.T) {
	for name, opts := range lates {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				opts := append(slices.Clone(opts), schedule.With(mongolock.TTL(30*time.Second)))
				one := c.process(1).add("job", schedule.Every(time.Minute), time.Second, opts...)
				two := c.process(2).add("job", schedule.Every(time.Minute), time.Second, opts...)
				claims := 0
				one.link.Fail(func(call string) (before, after error) {
					switch {
					case time.Since(c.begin) < 2*time.Minute:
						return nil, nil
					case call == "claim":
						return nil, jobstest.ErrCut
					case call == "undo":
						time.Sleep(3 * time.Second) // virtual, as all here
						one.link.Cut()
						return nil, nil
					}
					return nil, nil
				})
				two.link.Fail(func(call string) (before, after error) {
					if call == "claim" && time.Since(c.begin) >= 2*time.Minute {
						if claims++; claims == 1 {
							time.Sleep(10 * time.Millisecond)
							return jobstest.ErrCut, nil
						}
					}
					return nil, nil
				})
				one.start()
				two.start()
				c.until(4*time.Minute + 30*time.Second)
				one.stop()
				two.end()
				<-one.over
				assert.Equal(c, seconds(60, 120, 180, 240), c.fires())
			})
		})
	}
}
