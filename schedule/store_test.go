package schedule_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/store"
)

// verdicts is what a claim about a store needs of a test; a broken store is shown
// to be caught with one that only takes notes.
type verdicts interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// bench is a claim's store and job. Its fires are a minute apart, which is nothing
// to a store.
type bench struct {
	verdicts
	store schedule.Store
	job   string
	short time.Duration // a TTL that is waited for
	base  time.Time
}

const long = time.Minute

func (b *bench) fire(n int) time.Time { return b.base.Add(time.Duration(n) * time.Minute) }

func (b *bench) ask(n int) schedule.Claim {
	return schedule.Claim{
		Ref:  schedule.Ref{Job: b.job, ID: rand.Text()},
		Fire: b.fire(n), Next: b.fire(n + 1), TTL: long, Owner: "somebody", Plan: "a plan", Keep: 3, Attempt: 1,
	}
}

func (b *bench) ctx() context.Context { return context.Background() }

func (b *bench) won(c schedule.Claim) schedule.Claimed {
	b.Helper()
	won, err := b.store.Claim(b.ctx(), c)
	if err != nil {
		b.Fatalf("claim of fire %v: %v", c.Fire, err)
	}
	return won
}

func (b *bench) refused(what string, c schedule.Claim) {
	b.Helper()
	if _, err := b.store.Claim(b.ctx(), c); !errors.Is(err, schedule.ErrNotDue) {
		b.Errorf("%s: %v", what, err)
	}
}

func (b *bench) end(c schedule.Claim, won schedule.Claimed) schedule.End {
	return schedule.End{Ref: c.Ref, Slot: won.Slot, Dead: won.Dead, Keep: c.Keep,
		Run: schedule.Run{Job: c.Job, ID: c.ID, Fire: c.Fire, Attempt: c.Attempt, Owner: c.Owner, Began: won.Began, Outcome: schedule.Done}}
}

func (b *bench) finish(c schedule.Claim, won schedule.Claimed) {
	b.Helper()
	if err := b.store.Finish(b.ctx(), b.end(c, won)); err != nil {
		b.Fatalf("finish: %v", err)
	}
}

func (b *bench) state() schedule.State {
	b.Helper()
	all, err := b.store.Look(b.ctx(), []string{b.job})
	if err != nil {
		b.Fatalf("look: %v", err)
	}
	return all[0]
}

func (b *bench) gone(what string, err error) {
	b.Helper()
	if !errors.Is(err, store.ErrGone) {
		b.Errorf("%s: %v", what, err)
	}
}

// dead is a run that has run out.
func (b *bench) dead(n int) (schedule.Claim, schedule.Claimed) {
	c := b.ask(n)
	c.TTL = b.short
	won := b.won(c)
	time.Sleep(b.short * 3 / 2)
	return c, won
}

// claims are what a Store owes.
var claims = map[string]func(*bench){
	"a fire is claimed once": func(b *bench) {
		b.refusedAfterAll(b.ask(1))
	},
	"a fire is claimed by one of many at once": func(b *bench) {
		b.won(b.ask(0)) // the document is there
		for n := 1; n <= 20; n++ {
			var wins atomic.Int32
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					c := b.ask(n)
					c.Shared = true
					_, err := b.store.Claim(b.ctx(), c)
					if err == nil {
						wins.Add(1)
					} else if !errors.Is(err, schedule.ErrNotDue) {
						b.Errorf("%v", err)
					}
					runtime.Gosched()
				})
			}
			wg.Wait()
			if wins.Load() != 1 {
				b.Errorf("fire %d was claimed %d times", n, wins.Load())
			}
		}
	},
	"a fire before one that is decided is not claimed": func(b *bench) {
		c := b.ask(5)
		b.finish(c, b.won(c))
		b.refused("an earlier fire", b.ask(4))
		b.won(b.ask(6))
	},
	"a job that is busy is not claimed, and then it is": func(b *bench) {
		c := b.ask(1)
		won := b.won(c)
		b.refused("while it is busy", b.ask(2))
		b.finish(c, won)
		b.won(b.ask(2))
	},
	"shared runs are under way side by side": func(b *bench) {
		for n := range 3 {
			c := b.ask(n)
			c.Shared = true
			won := b.won(c)
			if n == 1 {
				b.finish(c, won)
			}
		}
		if s := b.state(); len(s.Runs) != 2 || !s.Runs[0].Fire.Equal(b.fire(0)) || !s.Runs[1].Fire.Equal(b.fire(2)) || len(s.Past) != 1 {
			b.Errorf("under way: %+v", s)
		}
	},
	"a fire is not claimed over others that are left": func(b *bench) {
		c := b.ask(1)
		b.finish(c, b.won(c))
		c = b.ask(3)
		c.From = b.fire(2)
		b.refused("with fire 2 left", c)
		c = b.ask(2)
		c.From = b.fire(1)
		b.won(c)
	},
	"a run that ran out makes way for the next fire": func(b *bench) {
		gone, _ := b.dead(1)
		next := b.ask(2)
		won := b.won(next)
		if len(won.Dead) != 1 || won.Dead[0].ID != gone.ID || won.Dead[0].Owner != gone.Owner {
			b.Fatalf("the dead: %+v", won.Dead)
		}
		_, err := b.store.Renew(b.ctx(), gone.Ref, long)
		b.gone("the dead one renews", err)
		b.gone("the dead one ends", b.store.Finish(b.ctx(), b.end(gone, schedule.Claimed{})))
		if s := b.state(); s.Busy != next.ID {
			b.Errorf("busy is %q, not the later one", s.Busy)
		}
		b.finish(next, won)
		past := b.state().Past
		if len(past) != 2 || past[0].ID != next.ID || past[1].ID != gone.ID || past[1].Outcome != schedule.Died {
			b.Errorf("the past: %+v", past)
		}
	},
	"a run that ran out is repeated by one, and not passed over": func(b *bench) {
		gone, _ := b.dead(1)
		c := b.ask(2)
		c.Wait = true
		b.refused("a later fire, while it waits", c)
		died := b.state().Runs[0]
		again := func() schedule.Claim {
			c := b.ask(1)
			c.Dead, c.Attempt = &died, 2
			return c
		}
		second := again()
		won := b.won(second)
		b.refused("another repeats it", again())
		s := b.state()
		if len(s.Runs) != 1 || s.Runs[0].ID != second.ID || s.Runs[0].Attempt != 2 || !s.Decided.Equal(b.fire(1)) {
			b.Errorf("under way: %+v", s)
		}
		if len(s.Past) != 1 || s.Past[0].ID != gone.ID || s.Past[0].Outcome != schedule.Died {
			b.Errorf("the past: %+v", s.Past)
		}
		b.finish(second, won)
		b.won(c)
	},
	"a run that lives is not repeated": func(b *bench) {
		b.won(b.ask(1))
		alive := b.state().Runs[0]
		c := b.ask(1)
		c.Dead, c.Attempt = &alive, 2
		b.refused("its place is taken", c)
	},
	"renewal prolongs and never shortens": func(b *bench) {
		c := b.ask(1)
		c.TTL = b.short
		b.won(c)
		left, err := b.store.Renew(b.ctx(), c.Ref, long)
		if err != nil || left > long || left < long/2 {
			b.Fatalf("left %v, %v", left, err)
		}
		until := b.state().Runs[0].ExpireAt
		if _, err := b.store.Renew(b.ctx(), c.Ref, b.short); err != nil {
			b.Errorf("%v", err)
		}
		if now := b.state().Runs[0].ExpireAt; now.Before(until) {
			b.Errorf("shortened by %v", until.Sub(now))
		}
		time.Sleep(b.short * 3 / 2)
		b.refused("though it was renewed", b.ask(2))
	},
	"what ran out is not renewed, and its end is written": func(b *bench) {
		c, won := b.dead(1)
		_, err := b.store.Renew(b.ctx(), c.Ref, long)
		b.gone("renewed", err)
		b.finish(c, won)
		b.gone("ended twice", b.store.Finish(b.ctx(), b.end(c, won)))
		if past := b.state().Past; len(past) != 1 || past[0].Outcome != schedule.Done {
			b.Errorf("the past: %+v", past)
		}
	},
	"an end decides fires, and never takes that back": func(b *bench) {
		c := b.ask(1)
		e := b.end(c, b.won(c))
		e.Decided = b.fire(4)
		if err := b.store.Finish(b.ctx(), e); err != nil {
			b.Fatalf("%v", err)
		}
		b.refused("a skipped fire", b.ask(4))
		c = b.ask(5)
		e = b.end(c, b.won(c))
		e.Decided = b.fire(2)
		if err := b.store.Finish(b.ctx(), e); err != nil {
			b.Fatalf("%v", err)
		}
		if s := b.state(); !s.Decided.Equal(b.fire(5)) {
			b.Errorf("decided up to %v", s.Decided)
		}
	},
	"a claim undone gives its fire back": func(b *bench) {
		c := b.ask(1)
		b.won(c)
		b.undo(c)
		if s := b.state(); len(s.Runs) != 0 || s.Busy != "" {
			b.Errorf("left behind: %+v", s)
		}
		b.refusedAfterAll(b.ask(1))
	},
	"a claim undone takes back no later decision": func(b *bench) {
		c := b.ask(1)
		c.TTL = b.short
		b.won(c)
		time.Sleep(b.short * 3 / 2)
		later := b.ask(2)
		b.won(later)
		b.undo(c)
		if s := b.state(); !s.Decided.Equal(b.fire(2)) || s.Busy != later.ID {
			b.Errorf("%+v", s)
		}
		b.refused("the fire undone", b.ask(1))
	},
	"what was never claimed is undone all the same": func(b *bench) {
		b.undo(b.ask(1))
		b.refusedAfterAll(b.ask(1))
	},
	"a repetition undone is repeated": func(b *bench) {
		b.dead(1)
		died := b.state().Runs[0]
		c := b.ask(1)
		c.Dead, c.Attempt = &died, 2
		b.won(c)
		b.undo(c)
		died = b.state().Runs[0]
		c = b.ask(1)
		c.Dead, c.Attempt = &died, died.Attempt+1
		b.won(c)
	},
	"the past is the last runs, the last one first": func(b *bench) {
		for n := 1; n <= 5; n++ {
			c := b.ask(n)
			e := b.end(c, b.won(c))
			e.Run.Outcome, e.Run.Error = schedule.Failed, fmt.Sprint("error ", n, " \x00\u2028 $a.b")
			if err := b.store.Finish(b.ctx(), e); err != nil {
				b.Fatalf("%v", err)
			}
			time.Sleep(2 * time.Millisecond)
		}
		s := b.state()
		if len(s.Past) != 3 || s.Plan != "a plan" || !s.Next.Equal(b.fire(6)) || !s.Decided.Equal(b.fire(5)) {
			b.Fatalf("%+v", s)
		}
		for i, run := range s.Past {
			n := 5 - i
			if !run.Fire.Equal(b.fire(n)) || run.Outcome != schedule.Failed || run.Error != fmt.Sprint("error ", n, " \x00\u2028 $a.b") ||
				run.Owner != "somebody" || run.Job != b.job || run.Attempt != 1 || run.Ended.Before(run.Began) || run.Took() > 10*time.Second {
				b.Errorf("%d: %+v", n, run)
			}
		}
	},
	"a grant is honoured no shorter than it says": func(b *bench) {
		c := b.ask(1)
		c.TTL = b.short
		sent := time.Now()
		won := b.won(c)
		if won.Left <= 0 || won.Left > b.short {
			b.Fatalf("left %v", won.Left)
		}
		for time.Since(sent) < won.Left-b.short/20 {
			_, err := b.store.Claim(b.ctx(), b.ask(2))
			if took := time.Since(sent); err == nil && took < won.Left {
				b.Fatalf("another had it after %v of %v", took, won.Left)
			} else if err == nil {
				return
			}
			time.Sleep(b.short / 20)
		}
	},
	"jobs are listed, looked at and forgotten": func(b *bench) {
		other := b.job + ".$other"
		for _, job := range []string{b.job, other} {
			c := b.ask(1)
			c.Job = job
			b.won(c)
		}
		if err := b.store.Forget(b.ctx(), b.job); err != nil {
			b.Errorf("%v", err)
		}
		all, err := b.store.Look(b.ctx(), []string{b.job, other, "never heard of"})
		if err != nil || len(all) != 3 || all[0].Known || !all[1].Known || all[1].Job != other || all[2].Known || all[2].Job != "never heard of" {
			b.Errorf("%+v, %v", all, err)
		}
		names, err := b.store.Names(b.ctx())
		if err != nil || len(names) == 0 {
			b.Errorf("%q, %v", names, err)
		}
		for _, name := range names {
			if name == b.job {
				b.Errorf("not forgotten")
			}
		}
		b.refusedAfterAll(b.ask(1))
	},
}

// refusedAfterAll claims a fire that must be free, and then again.
func (b *bench) refusedAfterAll(c schedule.Claim) {
	b.Helper()
	won := b.won(c)
	again := b.ask(0)
	again.Fire = c.Fire
	b.refused("claimed again", again)
	b.finish(c, won)
	b.refused("claimed again afterwards", again)
}

func (b *bench) undo(c schedule.Claim) {
	b.Helper()
	if settled, err := b.store.Undo(b.ctx(), c); err != nil || !settled {
		b.Fatalf("undo: settled %v, %v", settled, err)
	}
}

func newBench(v verdicts, s schedule.Store, short time.Duration) *bench {
	return &bench{verdicts: v, store: s, job: "job-" + rand.Text(), short: short, base: time.Now().UTC().Truncate(time.Minute)}
}

func TestMemoryKeepsTheContract(t *testing.T) {
	for name, claim := range claims {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { claim(newBench(t, schedule.NewMemory(), time.Second)) })
		})
	}
}

// notes takes what a broken store made fail.
type notes struct {
	mu   sync.Mutex
	said []string
}

func (*notes) Helper() {}

func (n *notes) Errorf(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, fmt.Sprintf(format, args...))
}

func (n *notes) Fatalf(format string, args ...any) {
	n.Errorf(format, args...)
	runtime.Goexit()
}

// Stores that break one duty each.
type (
	byTimer    struct{ schedule.Store } // remembers no fire
	byJob      struct{ schedule.Store } // ends whatever is under way
	resurrects struct{ schedule.Store } // renews what ran out
	noWay      struct{ schedule.Store } // undoes nothing
	neverDies  struct{ schedule.Store } // believes that all runs live
)

func (s byTimer) Claim(ctx context.Context, c schedule.Claim) (schedule.Claimed, error) {
	all, err := s.Look(ctx, []string{c.Job})
	if err == nil && all[0].Busy == "" {
		err = s.Forget(ctx, c.Job)
	}
	if err != nil {
		return schedule.Claimed{}, err
	}
	return s.Store.Claim(ctx, c)
}

func (s byJob) Finish(ctx context.Context, e schedule.End) error {
	if all, err := s.Look(ctx, []string{e.Job}); err == nil && all[0].Busy != "" {
		e.ID = all[0].Busy
	}
	return s.Store.Finish(ctx, e)
}

func (s resurrects) Renew(ctx context.Context, r schedule.Ref, ttl time.Duration) (time.Duration, error) {
	left, err := s.Store.Renew(ctx, r, ttl)
	if errors.Is(err, store.ErrGone) {
		return ttl, nil
	}
	return left, err
}

func (noWay) Undo(context.Context, schedule.Claim) (bool, error) { return true, nil }

func (s neverDies) Claim(ctx context.Context, c schedule.Claim) (schedule.Claimed, error) {
	c.TTL = time.Hour
	return s.Store.Claim(ctx, c)
}

func TestControlAStoreThatBreaksADutyIsCaught(t *testing.T) {
	broken := map[string]struct {
		store schedule.Store
		claim string
	}{
		"a lock alone":              {byTimer{schedule.NewMemory()}, "a fire is claimed once"},
		"ends by the job's name":    {byJob{schedule.NewMemory()}, "a run that ran out makes way for the next fire"},
		"renews what ran out":       {resurrects{schedule.NewMemory()}, "what ran out is not renewed, and its end is written"},
		"undoes nothing":            {noWay{schedule.NewMemory()}, "a claim undone gives its fire back"},
		"believes all runs to live": {neverDies{schedule.NewMemory()}, "a run that ran out makes way for the next fire"},
	}
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &notes{}
				done := make(chan struct{})
				go func() {
					defer close(done)
					claims[b.claim](newBench(n, b.store, time.Second))
				}()
				<-done
				if len(n.said) == 0 {
					t.Errorf("%q does not notice", b.claim)
				}
			})
		})
	}
}
