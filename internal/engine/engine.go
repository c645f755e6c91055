// Package engine is what one client has, wants and owes: who waits here for which key, which leases it holds, and
// what it has to clean up. The root package is its face.
//
// A core decides, as pure steps from one event to what is to be done (core.go). The Engine around it has one mutex,
// one timer, and the goroutines that call the store.
package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/background"
	"github.com/mongolock/mongolock/internal/errtext"
	"github.com/mongolock/mongolock/internal/follow"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/leasectx"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/store"
)

// An Engine grants leases from one store. It is safe for concurrent use. No store, observer, logger or other callback
// is called with its mutex locked.
type Engine struct {
	config     Config
	store      store.Store
	feed       store.Feed      // nil: none
	clock      monotonic.Clock // counts the time for which the machine is suspended
	background *background.Group
	reader     *follow.Follower
	watchdog   monotonic.Watchdog
	draining   chan struct{} // closed when nobody may wait any more

	mu      sync.Mutex // protects what follows, and what hangs on it
	core    core
	timer   *time.Timer
	rings   moment          // when the timer does; zero: it is not set
	settled []chan struct{} // closed when nothing is held
	idle    chan struct{}   // closed when nothing is held, owed or waited for; nil: nobody waits for that
}

// New makes an Engine on a store. It sends nothing yet.
func New(s store.Store, config Config) *Engine {
	e := &Engine{config: config, store: s, feed: store.FeedOf(s), draining: make(chan struct{})}
	e.measure(monotonic.NewMeter())
	e.background = background.New()
	e.config.Address, e.config.Announces, e.config.NewID = rand.Text()[:8], e.feed != nil, rand.Text
	e.core = newCore(&e.config)
	listened := e.feed
	if config.NoFeed {
		listened = nil
	}
	e.core.deaf = listened == nil
	e.reader = follow.New(e.background.Base(), listened, store.Audience{Address: e.config.Address}, e.heard, e.lost)
	e.watchdog.Run, e.watchdog.Busy, e.watchdog.Slept = e.background.Do, e.busy, e.slept
	return e
}

func newCore(config *Config) core {
	c := core{config: config}
	c.alarms, c.due, c.undos = alarms(), debts(), make(map[string][]*debt)
	c.poll.of, c.recheck.of, c.owedAt.of = &c.poll, &c.recheck, &c.owedAt
	return c
}

// measure makes the clock count what m measures.
func (e *Engine) measure(m monotonic.Meter) {
	e.clock, e.watchdog.Meter = monotonic.CountingSleep(m), m
}

// busy reports whether there is a hold or a caller that waits.
func (e *Engine) busy() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.held != nil || e.core.waiting > 0
}

// slept makes up for the time for which the machine was suspended: leases that ran out end, and the timer is set by
// the time that has passed.
func (e *Engine) slept() {
	e.mu.Lock()
	e.rings = 0
	e.mu.Unlock()
	e.step(Event{Kind: Slept})
}

// heard and lost take in what the reader of the feed says.
func (e *Engine) heard(n store.Notice) {
	if n == (store.Notice{}) {
		e.step(Event{Kind: FeedLive})
		return
	}
	e.step(Event{Kind: Heard, Notice: &n})
}

func (e *Engine) lost(loss follow.Loss) {
	e.step(Event{Kind: FeedLost, Err: loss.Err, Final: loss.Final, News: loss.News})
}

// step tells the core of an event, and does what comes of it.
func (e *Engine) step(event Event) { e.act(e.decide(event)) }

func (e *Engine) decide(event Event) *Ready {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &e.core
	c.live = event.Kind == FeedLive || c.live && e.reader.Live() // the reader closes the feed when it was not needed for long
	if event.Kind == Drain && !c.draining {
		close(e.draining)
	}
	ready := c.Step(e.clock.Now(), event)
	if c.held != nil || c.waiting > 0 {
		e.watchdog.Watch()
	}
	for _, call := range ready.Calls {
		switch { // those that may be cut off from now on
		case call.by != nil:
			e.within(call.by.outside.ctx, call)
		case len(call.Batch) == 1:
			e.within(call.Batch[0].outside.values, call)
		case call.Batch != nil:
			e.within(context.Background(), call)
		}
	}
	if ready.At != 0 && (e.rings == 0 || ready.At < e.rings) {
		e.rings = ready.At
		if e.timer == nil {
			e.timer = time.AfterFunc(e.clock.Until(ready.At), e.tick)
		} else {
			e.timer.Reset(e.clock.Until(ready.At))
		}
	}
	if c.held == nil {
		for _, over := range e.settled {
			close(over)
		}
		e.settled = nil
	}
	if e.idle != nil && c.idle() {
		close(e.idle)
		e.idle = nil
	}
	return ready
}

// tick is the timer's.
func (e *Engine) tick() {
	e.background.Do(func() {
		e.mu.Lock()
		e.rings = 0
		e.mu.Unlock()
		e.step(Event{Kind: Tick})
	})
}

// act does what a step has come to: first what others wait for, as a step may end any lease and begin any call. Observers
// and loggers, and what is told beside, may take their time.
func (e *Engine) act(ready *Ready, beside ...func()) {
	if ready.Listen != 0 {
		e.listen(ready.Listen)
	}
	for _, h := range ready.End {
		e.mu.Lock()
		contexts, cause := h.outside.contexts, h.err
		e.mu.Unlock()
		contexts.End(cause)
	}
	for _, a := range ready.Deliver {
		a.wakeUp()
	}
	for _, w := range ready.Waits {
		w.wakeUp()
	}
	for _, call := range ready.Cut {
		time.AfterFunc(AbandonedFor, call.outside.cancel)
	}
	for _, call := range ready.Calls {
		e.background.Run(func() { e.perform(call) })
	}
	for _, tell := range beside {
		tell()
	}
	for _, h := range ready.End {
		e.ended(h)
	}
	for _, m := range ready.Say {
		e.config.Logger.Log(context.Background(), m.Level, m.Text, m.Args...)
	}
	inline := ready.Inline
	e.mu.Lock()
	e.core.doneWith(ready)
	e.mu.Unlock()
	if inline != nil {
		e.perform(inline)
	}
}

// listen says that so many more keys and holds need the feed.
func (e *Engine) listen(n int) {
	for ; n > 0; n-- {
		e.reader.Join()
	}
	for ; n < 0; n++ {
		e.reader.Leave()
	}
}

// ended tells the observer and the logger of the end of a hold.
func (e *Engine) ended(h *Hold) {
	cause := h.err // which does not change any more
	if end := h.outside.end; end != nil {
		tell := func() { end(Outcome{Err: cause, Token: h.Token, Count: 1}) }
		if errors.Is(cause, ErrReleased) || errors.Is(cause, ErrDetached) {
			tell()
		} else { // its holder did not end it: others may end many, one after the other
			e.background.Run(tell)
		}
	}
	if IsLoss(cause) {
		e.config.Logger.Warn("mongolock: lease lost", "key", h.Ref.Key, "token", h.Token, "cause", cause)
	}
}

func (a *Asker) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// callerOutside and the like are what the core does not look at.
type (
	callerOutside struct {
		engine *Engine
		ctx    context.Context
	}

	holdOutside struct {
		engine   *Engine
		values   context.Context // of the call that asked for it: for its values, not for its end
		end      func(Outcome)   // tells the observer of its end; nil: it was never held
		released func(Outcome)   // tells it of the attempt to give it back that goes on after a handoff that was not applied
		done     chan struct{}   // made at the first call of Done
		wanted   chan struct{}   // made at the first call of Wanted
		contexts *leasectx.Tether
		asker    Asker // of the first release
		asked    bool  // it is in use
	}

	callOutside struct {
		ctx    context.Context
		cancel context.CancelFunc
	}
)

// tellWanted closes the channel of Wanted.
func (h *Hold) tellWanted() {
	if h.outside.wanted == nil {
		return
	}
	select {
	case <-h.outside.wanted:
	default:
		close(h.outside.wanted)
	}
}

// AbandonedFor is how much longer a claim may take than its caller waits for it. Then it is cut off and undone, all
// within a second. To cut it off at once would leave a claim to undo each time that a caller leaves, although most
// claims are answered in a moment.
const AbandonedFor = 900 * time.Millisecond

// Acquire waits until the key is granted, or until ctx or the patience of its terms is over.
func (e *Engine) Acquire(ctx context.Context, key string, t *Terms) (*Hold, error) {
	as, _ := ctx.Value(inside.ShownKey{}).(inside.Shown)
	w := &Caller{Key: key, Terms: t, Candidate: as.Package == "leader"}
	now := e.clock.Now()
	if at, is := ctx.Deadline(); is {
		w.Leaves = now.Add(time.Until(at))
	}
	if t.MaxWait > 0 {
		w.Patience = now.Add(t.MaxWait)
		if w.Leaves == 0 || w.Leaves > w.Patience {
			w.Leaves = w.Patience
		}
	}
	return e.await(ctx, w)
}

// Try asks for the key once.
func (e *Engine) Try(ctx context.Context, key string, t *Terms) (*Hold, error) {
	return e.await(ctx, &Caller{Key: key, Terms: t, Once: true})
}

// Resume takes over a lease that was detached, and goes on under its token.
func (e *Engine) Resume(ctx context.Context, from store.Ref, token int64, t *Terms) (*Hold, error) {
	return e.await(ctx, &Caller{Key: from.Key, Terms: t, Once: true, Resumes: &from, Token: token})
}

func (e *Engine) await(ctx context.Context, w *Caller) (h *Hold, err error) {
	w.outside = callerOutside{e, ctx}
	w.wake = make(chan struct{}, 1)
	var endWait func(Outcome)
	e.step(Event{Kind: Want, Caller: w})
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			e.step(Event{Kind: GiveUp, Caller: w, Err: ContextError(ctx)})
		case <-e.draining:
			e.step(Event{Kind: GiveUp, Caller: w, Err: ErrClosed})
		}
		e.mu.Lock()
		over, waits := w.Done, w.waits
		e.mu.Unlock()
		if waits && endWait == nil {
			_, endWait = e.Observe(ctx, OpWait, w.Key, w.Terms)
		}
		if over {
			break
		}
	}
	if endWait != nil {
		endWait(Outcome{Err: w.Err, Count: 1})
	}
	return w.Hold, w.Err
}

// wait waits for an answer that may have come.
func (e *Engine) wait(ctx context.Context, a *Asker) error {
	e.mu.Lock()
	if a.Done {
		e.mu.Unlock()
		return a.Err
	}
	a.wake = make(chan struct{}, 1)
	e.mu.Unlock()
	select {
	case <-a.wake:
		return a.Err
	case <-ctx.Done():
		return ContextError(ctx)
	}
}

// ContextError returns why ctx has ended: its Err, with its cause if that says more.
func ContextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case cause == nil || errors.Is(cause, err):
		return err
	case errors.Is(cause, ErrPatience): // of AcquireAll: no context of the caller's has ended
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Ready refuses a call whose context has ended already, or whose client is closed, before anything is sent.
func (e *Engine) Ready(ctx context.Context, op, key string) error {
	if ctx.Err() != nil {
		return &Fault{Op: op, Key: key, Err: &CallerGone{ContextError(ctx)}}
	}
	select {
	case <-e.draining:
		return &Fault{Op: op, Key: key, Err: ErrClosed}
	default:
		return nil
	}
}

// Unsettled reports whether an earlier claim of this client may hold a key.
func (e *Engine) Unsettled(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.mayHold(key)
}

// Holds returns those that are not settled.
func (e *Engine) Holds() (all []*Hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for h := e.core.held; h != nil; h = h.next {
		all = append(all, h)
	}
	return all
}

// Drain ends the waits, refuses new calls and gives up all places in lines.
func (e *Engine) Drain() { e.step(Event{Kind: Drain}) }

// Shutdown drains the engine, cancels the contexts of all leases, and waits until their holders have released them or
// ctx ends.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.Drain()
	for _, h := range e.Holds() {
		h.cancel(ErrClosed)
	}
	e.mu.Lock()
	over := make(chan struct{})
	if e.core.held == nil {
		close(over)
	} else {
		e.settled = append(e.settled, over)
	}
	e.mu.Unlock()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("mongolock: shutdown: leases left: %w", ContextError(ctx))
	}
}

// Close ends every lease, gives their holders one margin to stop, and waits until all is given back, cleaned up and
// left, at most the margin and releaseBound.
func (e *Engine) Close() error {
	e.step(Event{Kind: Drain})
	e.reader.End() // nobody waits any more, and a store may take a moment to end its feed
	all := e.Holds()
	e.step(Event{Kind: Shut})
	e.mu.Lock()
	grace := e.core.grace()
	idle := make(chan struct{})
	if e.core.idle() {
		close(idle)
	} else {
		e.idle = idle
	}
	e.mu.Unlock()
	giveUp := time.NewTimer(grace + releaseBound)
	defer giveUp.Stop()
	select {
	case <-idle:
	case <-giveUp.C:
		e.step(Event{Kind: Cut})
	}
	e.background.Cut() // renewals too, which nobody waits for
	e.reader.Close()
	e.mu.Lock()
	if e.timer != nil {
		e.timer.Stop()
	}
	e.mu.Unlock()
	e.background.Wait() // from here on no background work begins
	e.step(Event{Kind: Cut})
	return e.leftBehind(all)
}

// leftBehind returns the error of Close: the errors of the releases, and the leases and claims that are left to run out.
func (e *Engine) leftBehind(all []*Hold) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, h := range all {
		if h.state == settled && errors.Is(h.err, ErrClosed) {
			errs = append(errs, h.late)
		}
	}
	for h := e.core.held; h != nil; h = h.next {
		errs = append(errs, fmt.Errorf("mongolock: close: %s is not released and runs out by itself: %w", errtext.Key(h.Ref.Key), cmp.Or(h.late, ErrOutcomeUnknown)))
	}
	for _, name := range e.core.undosLeft() {
		errs = append(errs, fmt.Errorf("mongolock: close: a claim of %s runs out by itself: %w", errtext.Key(name), ErrOutcomeUnknown))
	}
	return errors.Join(errs...)
}
