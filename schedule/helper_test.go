package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock/schedule"
	"github.com/mongolock/mongolock/store"
)

// A plug is a process's way to the store: it counts, and fails on command.
type plug struct {
	schedule.Store

	mu    sync.Mutex
	sent  map[string]int
	fault func(call string) (before, after error) // before: not applied; after: applied, reply lost
}

func (p *plug) through(call string, send func() error) error {
	p.mu.Lock()
	if p.sent == nil {
		p.sent = map[string]int{}
	}
	p.sent[call]++
	fault := p.fault
	p.mu.Unlock()
	if fault == nil {
		return send()
	}
	before, after := fault(call)
	if before != nil {
		return before
	}
	return errors.Join(send(), after)
}

func (p *plug) set(fault func(call string) (before, after error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

var errCut = errors.New("the line is cut")

// die makes everything fail from now on.
func (p *plug) die() { p.set(func(string) (error, error) { return errCut, nil }) }

func (p *plug) take() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.sent
	p.sent = nil
	return was
}

func (p *plug) Claim(ctx context.Context, c schedule.Claim) (won schedule.Claimed, err error) {
	err = p.through("claim", func() (err error) { won, err = p.Store.Claim(ctx, c); return err })
	return won, err
}

func (p *plug) Renew(ctx context.Context, r schedule.Ref, ttl time.Duration) (left time.Duration, err error) {
	err = p.through("renew", func() (err error) { left, err = p.Store.Renew(ctx, r, ttl); return err })
	return left, err
}

func (p *plug) Finish(ctx context.Context, e schedule.End) error {
	return p.through("finish", func() error { return p.Store.Finish(ctx, e) })
}

func (p *plug) Undo(ctx context.Context, c schedule.Claim) (settled bool, err error) {
	err = p.through("undo", func() (err error) { settled, err = p.Store.Undo(ctx, c); return err })
	return settled && err == nil, err
}

func (p *plug) Look(ctx context.Context, names []string) (all []schedule.State, err error) {
	err = p.through("look", func() (err error) { all, err = p.Store.Look(ctx, names); return err })
	return all, err
}

// A room is a store and the processes on it, in a bubble of virtual time.
type room struct {
	*testing.T
	store schedule.Store
	begin time.Time

	mu   sync.Mutex
	runs []ran
}

type ran struct {
	schedule.Run
	by int
	at time.Duration // since the room's beginning
}

// inRoom runs a test in virtual time, which begins at midnight.
func inRoom(t *testing.T, body func(r *room)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		body(&room{T: t, store: schedule.NewMemory(), begin: time.Now()})
	})
}

// A process is one Scheduler.
type process struct {
	*schedule.Scheduler
	room *room
	plug *plug
	nr   int
	stop context.CancelFunc
	over chan error
}

func (r *room) process(nr int, opts ...schedule.Option) *process {
	r.Helper()
	p := &process{room: r, plug: &plug{Store: r.store}, nr: nr, over: make(chan error, 1)}
	opts = append([]schedule.Option{
		schedule.WithOwner(fmt.Sprintf("process-%d", nr)), schedule.WithLogger(slog.New(slog.DiscardHandler)),
	}, opts...)
	var err error
	if p.Scheduler, err = schedule.NewWithStore(p.plug, opts...); err != nil {
		r.Fatal(err)
	}
	return p
}

// add puts a job on it that notes its runs and takes so long.
func (p *process) add(name string, plan schedule.Plan, takes time.Duration, opts ...schedule.JobOption) *process {
	p.room.Helper()
	return p.job(name, plan, func(ctx context.Context, _ schedule.Run) error {
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, opts...)
}

func (p *process) job(name string, plan schedule.Plan, fn schedule.Func, opts ...schedule.JobOption) *process {
	p.room.Helper()
	err := p.Add(name, plan, func(ctx context.Context, run schedule.Run) error {
		p.room.mu.Lock()
		p.room.runs = append(p.room.runs, ran{run, p.nr, time.Since(p.room.begin)})
		p.room.mu.Unlock()
		return fn(ctx, run)
	}, opts...)
	if err != nil {
		p.room.Fatal(err)
	}
	return p
}

func (p *process) start() *process {
	ctx, cancel := context.WithCancel(p.room.Context())
	p.stop = cancel
	go func() { p.over <- p.Run(ctx) }()
	return p
}

func (p *process) end() {
	p.room.Helper()
	p.stop()
	if err := <-p.over; err != nil {
		p.room.Errorf("process %d: %v", p.nr, err)
	}
}

// fires lists the runs so far: the fire of each, since the room's beginning.
func (r *room) fires() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]time.Duration, len(r.runs))
	for i, run := range r.runs {
		all[i] = run.Fire.Sub(r.begin)
	}
	slices.Sort(all)
	return all
}

func (r *room) take() []ran {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.runs
	r.runs = nil
	return was
}

func (r *room) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *room) state(name string) schedule.State {
	r.Helper()
	all, err := r.store.Look(context.Background(), []string{name})
	if err != nil {
		r.Fatal(err)
	}
	return all[0]
}

func (r *room) expect(what string, got, want any) {
	r.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.Errorf("%s: %v, not %v", what, got, want)
	}
}

func seconds(all ...float64) []time.Duration {
	d := make([]time.Duration, len(all))
	for i, s := range all {
		d[i] = time.Duration(s * float64(time.Second))
	}
	return d
}

var _ = store.ErrGone
