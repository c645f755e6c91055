package scheduletest

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/schedule/internal/jobs/jobstest"
	"github.com/mongolock/mongolock/store"
)

const rival = "somebody else"

// failing is a store in memory whose calls can be made to fail, and on which another process
// claims due times first.
type failing struct {
	jobstest.Store
	mem *jobs.Memory

	mu    sync.Mutex // protects all that follows
	err   error      // the answer of every call; nil if calls succeed
	lost  map[string]bool
	holds map[string]*hold // by job
}

// A hold is the part of the other process in one job.
type hold struct {
	job string

	mu   sync.Mutex // protects the fields below; makes a claim and the end one step each
	over bool
	runs []held
}

// A held run is under way in the other process.
type held struct {
	end  jobs.End
	stop context.CancelFunc
	done chan struct{} // closed when it is no longer renewed
}

func newFailing() *failing {
	f := &failing{mem: jobs.NewMemory(), lost: make(map[string]bool), holds: make(map[string]*hold)}
	f.Store = jobstest.Store{To: f.mem, Through: f.through}
	return f
}

func (f *failing) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// through makes a call, unless it is to fail. A run that was lost may return, and so end, before its
// lease is settled.
func (f *failing) through(_ context.Context, c jobstest.Call, send func() error) error {
	if h := f.held(c.Claim.Job); h != nil {
		h.claimFirst(f.mem, c.Claim)
	}
	f.mu.Lock()
	lost, err := f.lost[c.Run], f.err
	f.mu.Unlock()
	switch {
	case lost:
		return store.ErrGone
	case err != nil:
		return err
	}
	return send()
}

// lose ends the time of a run. Its renewals and its end answer ErrGone, even while calls fail.
func (f *failing) lose(job, id string) {
	f.mem.RunOut(job, id)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost[id] = true
}

func (f *failing) hold(job string) (h *hold, already bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holds[job] != nil {
		return nil, true
	}
	h = &hold{job: job}
	f.holds[job] = h
	return h, false
}

func (f *failing) held(job string) *hold {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holds[job]
}

// release ends the runs of the other process, and its part in the job.
func (f *failing) release(h *hold) {
	f.mu.Lock()
	if f.holds[h.job] == h {
		delete(f.holds, h.job)
	}
	f.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	for _, r := range h.runs {
		r.stop()
		<-r.done
		_ = f.mem.End(context.Background(), r.end) // ErrGone: the job was forgotten
	}
	h.runs = nil
}

func (f *failing) releaseAll() {
	f.mu.Lock()
	holds := f.holds
	f.holds = make(map[string]*hold)
	f.mu.Unlock()
	for _, h := range holds {
		f.release(h)
	}
}

// claimFirst makes the other process claim what c claims.
func (h *hold) claimFirst(mem *jobs.Memory, c jobs.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || c.Run.Verdict != "" { // a verdict is no run
		return
	}
	c.ID, c.Run.Owner = rand.Text(), rival
	claimed, err := mem.Claim(context.Background(), c)
	if err != nil {
		return // it has the job already, or the due time is decided
	}
	end := jobs.End{Ref: c.Ref, Keep: c.Keep, Run: c.Run}
	end.Run.Job, end.Run.ID, end.Run.Began, end.Run.Number, end.Run.Outcome = c.Job, c.ID, claimed.Began, claimed.Number, string(schedule.Succeeded)
	ctx, stop := context.WithCancel(context.Background())
	r := held{end: end, stop: stop, done: make(chan struct{})}
	h.runs = append(h.runs, r)
	go func() {
		defer close(r.done)
		renew(ctx, mem, c)
	}()
}

// renew renews a run until ctx ends.
func renew(ctx context.Context, mem *jobs.Memory, c jobs.Claim) {
	third := time.NewTicker(c.TTL / 3)
	defer third.Stop()
	for {
		select {
		case <-third.C:
			if _, err := mem.Renew(ctx, c.Ref, c.TTL, true); err != nil {
				return // the job was forgotten
			}
		case <-ctx.Done():
			return
		}
	}
}
