package jobstest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// A Link is a process's way to the store. It counts the calls, and fails on command.
type Link struct {
	Store

	mu    sync.Mutex
	calls map[string]int
	reply time.Duration                           // how long the reply of a claim takes
	skew  time.Duration                           // how far the store's clock is ahead
	old   time.Duration                           // how far the process's samples of it are behind
	fault func(call string) (before, after error) // before: not applied; after: applied, reply lost
	late  func(call string) time.Duration         // positive: the call fails now, and is applied that much later, or once more
}

// NewLink returns a way to a store.
func NewLink(to jobs.Store) *Link {
	l := &Link{calls: map[string]int{}}
	l.Store = Store{To: to, Through: l.through}
	return l
}

func (l *Link) through(_ context.Context, c Call, send func() error) error {
	l.mu.Lock()
	if c.Op != "changed" { // a poll every 30 s, whatever the jobs do (TestAProcessAsksEvery30Seconds)
		l.calls[c.Op]++
	}
	fault, reply, late := l.fault, l.reply, l.late
	l.mu.Unlock()
	if late != nil {
		if d := late(c.Op); d > 0 {
			if d.Milliseconds()%2 == 0 {
				_ = send()
			}
			time.AfterFunc(d, func() { _ = send() })
			return ErrCut
		}
	}
	if c.Op == "claim" {
		defer time.Sleep(reply) //nolint:forbidigo // virtual time: the reply is under way
	}
	if fault == nil {
		return send()
	}
	before, after := fault(c.Op)
	if before != nil {
		return before
	}
	return errors.Join(send(), after)
}

// Fail has fault decide about each call from now on; nil ends that.
func (l *Link) Fail(fault func(call string) (before, after error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = fault
}

// ErrCut is the error of a call that does not arrive.
var ErrCut = errors.New("the connection is cut")

// Late has late decide about each call from now on; nil ends that.
func (l *Link) Late(late func(call string) time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = late
}

// Cut makes every call fail from now on.
func (l *Link) Cut() { l.Fail(func(string) (error, error) { return ErrCut, nil }) }

// Delay makes a claim take effect that much later from now on.
func (l *Link) Delay(d time.Duration) {
	l.Fail(func(call string) (error, error) {
		if call == "claim" {
			time.Sleep(d) //nolint:forbidigo // virtual time: the message is under way
		}
		return nil, nil
	})
}

// DelayReply makes the reply of a claim arrive that much after the claim was applied.
func (l *Link) DelayReply(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reply = d
}

// Counted returns the calls since it was last asked.
func (l *Link) Counted() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.calls
	l.calls = map[string]int{}
	return was
}

// Claim is that of a Store, by the process's clock.
func (l *Link) Claim(ctx context.Context, c jobs.Claim) (won jobs.Claimed, err error) {
	l.mu.Lock()
	if c.Dead != nil {
		dead := *c.Dead
		dead.ExpireAt = dead.ExpireAt.Add(-l.skew) // as Read has shown it
		c.Dead = &dead
	}
	l.mu.Unlock()
	won, err = l.Store.Claim(ctx, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	won.Began = won.Began.Add(l.skew)
	if err == nil {
		l.old = 0 // the reply is a sample
	}
	return won, err
}

// Read is that of a Store, by the process's clock.
func (l *Link) Read(ctx context.Context, names []string, detail jobs.Detail) (all []jobs.State, err error) {
	all, err = l.Store.Read(ctx, names, detail)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range all {
		if detail == jobs.WithPast {
			l.old = 0 // it asks for the time
		}
		all[i].Now = all[i].Now.Add(l.skew - l.old)
		for n := range all[i].Runs {
			all[i].Runs[n].ExpireAt = all[i].Runs[n].ExpireAt.Add(l.skew)
		}
	}
	return all, err
}

// Now is the process's clock.
func (l *Link) Now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Store.Now().Add(l.skew - l.old)
}

// SetClock sets how far the store's clock is ahead of the real time, and how far behind it
// this process's samples of it are.
func (l *Link) SetClock(ahead, behind time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.skew, l.old = ahead, behind
}
