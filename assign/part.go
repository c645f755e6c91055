package assign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
)

// prepareMost is how often in a row Prepare may fail for a partition before the pauses are long ones.
const prepareMost = 10

const (
	firm = 10 * time.Second // how long work has to go on before a pause after it is a short one again

	lostMost  = 10 * time.Second // the longest pause before a partition is asked for again whose lease has ended by itself
	longPause = 30 * time.Second // before a key is asked for again that is not used as this package does, or prepared again
)

// A Partition is one that this process works on.
type Partition struct {
	ID    int   // from 0 to N-1
	N     int   // how many partitions there are: what Run was given, or the last Resize
	Token int64 // greater than that of all who had the partition before; 0 in Prepare

	lease *mongolock.Lease
}

// Lease returns the lease that the partition is held by, or nil in Prepare.
func (p Partition) Lease() *mongolock.Lease { return p.lease }

// A part is a partition in this process: asked for, then worked on, then given back.
type part struct {
	Partition
	ctx context.Context
	end context.CancelCauseFunc

	free chan struct{} // closed once no worker has it: then nothing waits for the work of another

	// Protected by the run's mu.
	isFree  bool // free is closed
	granted bool
	wanted  bool // another worker has begun to wait for it
	ended   bool // told to stop, or its lease is lost
}

// follow carries out the plan as far as that is possible now: it asks for what is missing, and
// gives up what belongs to others if they wait for it. A lease tells of the first of those who wait,
// in time and once; s tells of all, if who waits was read.
func (r *run) follow(s *State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, mine := range r.plan {
		p := r.parts[id]
		if mine && p == nil {
			p = r.begin(id)
		}
		if mine && !p.isFree && id < len(s.Partitions) && s.Partitions[id].Owner == "" {
			p.isFree = true
			close(p.free)
		}
		switch {
		case p == nil:
		case mine:
			p.wanted = false // that one has read something old
		case !p.granted || p.wanted || id < len(s.Partitions) && s.Partitions[id].Waits:
			p.stop(ErrMoved)
		}
	}
}

// carriedOut reports whether this process has what it should have by the plan, and no more.
func (r *run) carriedOut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := len(r.parts)
	for id, mine := range r.plan {
		p := r.parts[id]
		if mine != (p != nil && p.granted && !p.ended) {
			return false
		}
		if mine {
			left--
		}
	}
	return left == 0 // otherwise some are asked for, or given back
}

// withdraw no longer asks for partitions, and returns how many are worked on.
func (r *run) withdraw() (working int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.parts {
		if !p.granted {
			p.stop(ErrStopped)
		}
		if !p.ended {
			working++
		}
	}
	return working
}

// stop gives up all partitions, and waits until they are released.
func (r *run) stop(cause error) {
	r.mu.Lock()
	for _, p := range r.parts {
		p.stop(cause)
	}
	r.mu.Unlock()
	r.work.Wait()
}

// stop tells the work to return. The run's mu is held.
func (p *part) stop(cause error) {
	p.ended = true
	p.end(cause)
}

// begin asks for a partition. The run's mu is held.
func (r *run) begin(id int) *part {
	p := &part{Partition: Partition{ID: id, N: r.n}, free: make(chan struct{})}
	p.ctx, p.end = context.WithCancelCause(r.base)
	r.parts[id] = p
	r.work.Go(func() {
		defer func() {
			p.end(nil)
			r.mu.Lock()
			delete(r.parts, id)
			r.mu.Unlock()
			r.hint()
		}()
		if r.ask(p) {
			granted := time.Now()
			why := r.hold(p)
			r.rest(p, time.Since(granted) < firm && !errors.Is(why, mongolock.ErrMaxHold))
		}
	})
	return p
}

// ask waits for the partition. It returns false if that is not to be worked on after all.
func (r *run) ask(p *part) bool {
	slots := r.asking
	select {
	case slots <- struct{}{}:
	case <-p.free: // it is not worked on: its Prepare waits for no other
		if slots = r.taking; !r.prepared(p) {
			return false
		}
		select {
		case slots <- struct{}{}:
		case <-p.ctx.Done():
			return false
		}
	case <-p.ctx.Done():
		return false
	}
	leave := sync.OnceFunc(func() { <-slots })
	defer leave()
	defer time.AfterFunc(slotMost, leave).Stop()
	if slots == r.asking && !r.prepared(p) {
		return false
	}
	opts := append(slices.Clone(r.acquire), mongolock.Yielding(), mongolock.MaxWait(forever), mongolock.Note(fmt.Sprintf(partNote, r.id, p.N)))
	pauses := backoff.New(pauseLeast, pauseMost)
	for failures := 0; ; {
		lease, err := r.client.Acquire(p.ctx, partKey(r.name, p.ID), opts...)
		switch {
		case err == nil:
			p.lease, p.Token = lease, lease.Token()
			if r.grant(p) {
				return true
			}
			r.warnOf(lease.Release())
			return false
		case p.ctx.Err() != nil:
			return false
		case errors.Is(err, mongolock.ErrClosed), errors.Is(err, mongolock.ErrDisconnected):
			r.fail(err)
			return false
		}
		pause := pauses.Next()
		if !passing(err) { // the others need not stand still for one
			pause = longPause
		}
		if failures++; rare(failures) {
			r.logger.Warn("assign: could not acquire a partition, trying again", "name", r.name, "partition", p.ID, "failures", failures, "error", err)
		}
		backoff.Sleep(p.ctx, pause)
	}
}

// rare reports which of the failures in a row of one partition are logged: there may be thousands of partitions.
func rare(failures int) bool { return failures&(failures-1) == 0 }

// grant reports whether the work may begin. Without the seat it may not, as others may work with another
// number by now. What was granted before the seat's end they see.
func (r *run) grant(p *part) bool {
	seated := r.seat.Err() == nil
	r.mu.Lock()
	defer r.mu.Unlock()
	p.granted = seated && !p.ended
	return p.granted
}

// prepared calls Prepare until it succeeds.
func (r *run) prepared(p *part) bool {
	if r.prepare == nil {
		return true
	}
	pauses := backoff.New(pauseLeast, pauseMost)
	for failures := 1; p.ctx.Err() == nil; failures++ {
		var err error
		returned := make(chan struct{})
		go func() { // awaited below, but for one that hangs
			defer close(returned)
			err = r.prepare(p.ctx, p.Partition)
		}()
		select {
		case <-returned:
		case <-p.ctx.Done():
			r.await(p, returned, "Prepare")
			return false
		}
		if err == nil {
			r.mu.Lock()
			r.ready = true
			r.mu.Unlock()
			return p.ctx.Err() == nil
		}
		if p.ctx.Err() != nil {
			return false
		}
		pause := pauses.Next()
		if failures >= prepareMost {
			r.mu.Lock()
			ready := r.ready
			r.mu.Unlock()
			if !ready { // it is this process that lacks something, not one partition
				r.fail(fmt.Errorf("%w: %d: %w", ErrUnprepared, p.ID, err))
				return false
			}
			pause = longPause
		}
		if rare(failures) {
			r.logger.Warn("assign: could not prepare a partition, trying again", "name", r.name, "partition", p.ID, "failures", failures, "error", err)
		}
		backoff.Sleep(p.ctx, pause)
	}
	return false
}

// hold has the partition worked on until its context ends, and gives it back. It returns the cause.
func (r *run) hold(p *part) error {
	ctx, returned := p.lease.Context(p.ctx), make(chan struct{})
	go func() { // awaited below, but for work that hangs
		defer close(returned)
		r.repeat(ctx, p)
	}()
	select {
	case <-p.lease.Wanted(): // it stays closed
		r.mu.Lock()
		p.wanted = true
		r.mu.Unlock()
		r.hint()
		<-ctx.Done()
	case <-ctx.Done():
	}
	r.mu.Lock()
	p.ended = true
	r.mu.Unlock()
	r.await(p, returned, "the work")
	r.warnOf(p.lease.Release())
	return context.Cause(ctx)
}

// rest pauses if the lease has ended by itself: its work stalled, or it was broken. If that happens soon
// again, the pause is longer.
func (r *run) rest(p *part, soon bool) {
	if p.ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	if r.pauses[p.ID] == nil || !soon {
		r.pauses[p.ID] = backoff.New(pauseLeast, lostMost)
	}
	pause := r.pauses[p.ID].Next()
	p.granted = false
	r.mu.Unlock()
	backoff.Sleep(p.ctx, pause)
}

// repeat calls the work until its context ends.
func (r *run) repeat(ctx context.Context, p *part) {
	returned := false
	defer func() {
		if !returned { // it panicked, and the process ends: others need not wait for the TTL
			r.warnOf(p.lease.Release())
		}
	}()
	pauses, failures := backoff.New(pauseLeast, pauseMost), 0
	for ctx.Err() == nil {
		began, woken := time.Now(), r.nextWake()
		err := r.fn(ctx, p.Partition)
		if ctx.Err() != nil {
			break
		}
		if err == nil || time.Since(began) >= firm {
			failures = 0
			pauses.Reset()
		}
		if err == nil {
			p.idle(ctx, woken, r.maxStall)
			continue
		}
		if failures++; rare(failures) {
			r.logger.Warn("assign: the work of a partition failed, calling it again", "name", r.name, "partition", p.ID, "failures", failures, "error", err)
		}
		backoff.Sleep(ctx, pauses.Next())
	}
	returned = true
}

// idle keeps a partition whose work is done until that is woken. Such work does not stall.
func (p *part) idle(ctx context.Context, woken <-chan struct{}, maxStall time.Duration) {
	var progress <-chan time.Time
	if maxStall > 0 {
		ticker := time.NewTicker(max(maxStall/3, time.Millisecond))
		defer ticker.Stop()
		progress = ticker.C
	}
	for {
		p.lease.Progress()
		select {
		case <-woken:
			return
		case <-ctx.Done():
			return
		case <-progress:
		}
	}
}

// await waits for a function whose context has ended. If it hangs, Run ends.
func (r *run) await(p *part, returned <-chan struct{}, of string) {
	select {
	case <-returned:
	case <-time.After(r.grace):
		r.logger.Error("assign: a function did not return; its partition is given up, and this worker ends", "name", r.name, "partition", p.ID, "function", of)
		r.fail(fmt.Errorf("%w: %s of partition %d, within the Grace of %v", ErrHung, of, p.ID, r.grace))
	}
}
