package assign

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/follow"
	"github.com/mongolock/mongolock/store"
)

// The notices of this package. Their key is the name.
const (
	topic       = "assign"
	kindWorkers = "workers" // one comes or goes
	kindWake    = "wake"    // see Wake
)

const (
	atOnce       = 4                      // partitions that a worker prepares and asks for at the same time while others work on them
	freeAtOnce   = 8                      // those that are free and asked for at the same time
	slotMost     = 5 * time.Second        // after which one that takes longer does not keep others from being asked for
	breath       = 20 * time.Millisecond  // between two looks: several partitions are asked for meanwhile, and none waits for a look without work
	lookAgain    = time.Second            // until the plan is carried out, and without a feed
	listsLeast   = 600 * time.Millisecond // the pauses between two lists, while others have not carried out the plan
	listsMost    = 10 * time.Second
	tellAfter    = 10 * time.Second      // that a worker waits for others
	lookAfterEnd = 10 * time.Millisecond // by which the clocks of the store and of this process may differ in pace
	readTime     = 10 * time.Second      // the bound of a read
	announceTime = 5 * time.Second       // the bound of a notice

	// The pauses after something failed.
	pauseLeast = 100 * time.Millisecond
	pauseMost  = time.Second
)

var errNoSeat = errors.New("assign: the seat is not there")

// running has the names for which Run runs, with their clients.
var running sync.Map

// Run works on this process's share of n partitions, until ctx ends. It calls fn for each partition
// that this process has, in a goroutine of its own. The context of fn ends when the partition goes to
// another worker (ErrMoved), when this one ends (ErrStopped) and when the lease is lost: fn returns
// then, within Grace. If fn returns an error before, it is called again after a
// pause; if it returns nil, when [Wake] says so. A panic in fn ends the
// process, as any does.
//
// When ctx ends, Run hands over its partitions (see Drain) and returns nil. It waits for a database
// that is out of reach: partitions whose leases end meanwhile are stopped. It returns ErrSize,
// ErrRunning, ErrHung, ErrUnprepared, and errors that will not pass: mongolock.ErrForeign and
// ErrModeMismatch, if the key of the workers is not as this package makes it, ErrClosed and
// ErrDisconnected; then it has handed over its partitions too.
//
// Of more workers than partitions, the last ones stand by until another goes. Close the client after Run
// has returned. Its MaxHold and MaxStall apply to partitions, and its MaxWait to nothing here; give it
// no NoRenewal. What others hold by hand under a partition's key keeps that partition alone from being
// worked on. Under "orders/workers" it is an error (mongolock.ErrModeMismatch), or, if it is held
// exclusively, no partition is worked on meanwhile. Have few other keys under "orders/": workers list them, too.
func Run(ctx context.Context, client *mongolock.Client, name string, n int, fn Func, opts ...Option) error {
	conf, err := newConfig(client, opts)
	if err := errors.Join(usable("Run", client, name), usableSize("Run", n), err); err != nil {
		return err
	}
	if fn == nil {
		return errors.New("assign: Run: fn is nil")
	}
	type call struct {
		client *mongolock.Client
		name   string
	}
	if _, is := running.LoadOrStore(call{client, name}, nil); is {
		return fmt.Errorf("%w: %q", ErrRunning, name)
	}
	defer running.Delete(call{client, name})

	base := context.WithoutCancel(ctx)
	r := &run{
		config: conf, client: client, name: name, id: rand.Text()[:12], n: n, fn: fn, base: base,
		news:   make(chan struct{}, 1),
		asking: make(chan struct{}, atOnce), taking: make(chan struct{}, freeAtOnce),
		parts: make(map[int]*part), pauses: make(map[int]*backoff.Backoff), woken: make(chan struct{}),
	}
	r.feed = follow.New(base, client.Feed(), store.Audience{Topics: []string{topic}}, func(n store.Notice) {
		switch {
		case n == (store.Notice{}):
			r.wake()
			r.hint()
		case n.Topic != topic || n.Key != name:
		case n.Kind == kindWake:
			r.wake()
		default:
			r.hint()
		}
	}, func(follow.Loss) { r.wake(); r.hint() }) // the next look may otherwise be far away
	r.feed.Join()
	defer r.feed.Close()
	switch err := r.run(ctx); {
	case errors.As(err, new(*SizeError)):
		return err // names itself
	case err != nil:
		return fmt.Errorf("assign: %q: %w", name, err)
	}
	return nil
}

// A run is one call of Run: a worker.
type run struct {
	config
	client *mongolock.Client
	feed   *follow.Follower
	name   string
	id     string // of the worker
	fn     Func
	base   context.Context // of the work: it does not end with Run's
	news   chan struct{}   // asks for a look
	asking chan struct{}   // has a slot for each partition that is asked for while another works on it
	taking chan struct{}   // and for each that was free
	work   sync.WaitGroup  // of parts

	// These belong to the goroutine of Run.
	n        int  // partitions
	seated   bool // it had a seat: the number may have changed since
	plan     []bool
	planned  State            // what the plan was made from
	calm     bool             // how it was made
	whole    bool             // every worker had then what it should have
	lists    *backoff.Backoff // the pauses between two lists until that is so
	listed   time.Time        // when was read last who has what
	resizeAt time.Time        // when a Resize was seen last
	waits    delay            // until no partition of another number is worked on

	seat *mongolock.Lease // set while there are no parts

	mu     sync.Mutex               // protects what follows; never held across a call
	parts  map[int]*part            // by partition: those that are asked for, worked on or given back
	pauses map[int]*backoff.Backoff // by partition: before it is asked for again, if its lease has ended by itself
	ready  bool                     // a Prepare has succeeded
	why    error                    // what makes Run end
	woken  chan struct{}            // closed by the next Wake
}

func (r *run) run(ctx context.Context) error {
	for {
		seat, err := r.sit(ctx)
		if seat == nil {
			return err
		}
		r.seat = seat
		switch r.serve(ctx, seat) {
		case over:
			r.leave(seat)
			return r.failure()
		case lost:
			r.logger.Warn("assign: the seat is lost; stopping all partitions, and coming again", "name", r.name, "error", seat.Err())
			r.stop(ErrStopped)
			r.release(seat) // if only its record is gone
		case resize:
			r.stop(ErrResized)
			r.release(seat)
			r.resizeAt = time.Now()
		}
		if err := r.failure(); err != nil {
			return err
		}
	}
}

// sit makes this process a worker. It returns no lease and no error if ctx has ended.
func (r *run) sit(ctx context.Context) (*mongolock.Lease, error) {
	var waits delay
	pauses := backoff.New(pauseLeast, pauseMost)
	for ctx.Err() == nil {
		s, err := readSeats(ctx, r.client, r.name)
		n := len(s.Partitions)
		refused := n > 0 && n != r.n && !r.seated
		if s.resizing {
			r.resizeAt = time.Now()
		}
		switch {
		case err != nil:
		case s.resizing, n == 0 && time.Since(r.resizeAt) < resizeOver, refused && len(s.Workers) == 0, s.mixed:
			// A Resize is about to say the number, or keeps the seats for those that come again; or some came
			// with another number, and are about to give their seats back.
			if waits.long() {
				r.logger.Warn("assign: waits until the key of the workers is free", "name", r.name, "key", r.name+seats, "held", s.held)
			}
			select {
			case <-r.news:
			case <-time.After(waits.pause()):
			case <-ctx.Done():
			}
			continue
		case refused:
			return nil, &SizeError{r.name, r.n, n}
		default:
			if n > 0 && n != r.n {
				r.logger.Warn("assign: the number of partitions has changed", "name", r.name, "before", r.n, "now", n)
				r.n = n
			}
			var seat *mongolock.Lease
			if seat, err = takeSeat(ctx, r.client, r.name, r.n, r.acquire, fmt.Sprintf(seatNote, r.id, r.weight, r.n)); seat != nil {
				r.seated = true
				r.announce()
				return seat, nil
			}
		}
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, mongolock.ErrModeMismatch):
			return nil, fmt.Errorf("the key of the workers is held, and not by workers (`mongolock show %s` says by whom): %w", r.name+seats, err)
		case err == nil: // others with another number came at the same time
			backoff.Sleep(ctx, pauses.Next())
		case !passing(err):
			return nil, err
		default:
			r.logger.Warn("assign: could not become a worker, trying again", "name", r.name, "error", err)
			backoff.Sleep(ctx, pauses.Next())
		}
	}
	return nil, nil
}

// takeSeat takes a seat for n partitions. It returns no seat and no error if seats for another number
// are there. Of two that come at the same time with different numbers, the one whose seat was granted
// later sees the other's. So never do both have one, and often none: each then tries again.
func takeSeat(ctx context.Context, client *mongolock.Client, name string, n int, opts []mongolock.AcquireOption, note string) (*mongolock.Lease, error) {
	seat, err := client.Acquire(ctx, name+seats, append(slices.Clone(opts), seatFor(note)...)...)
	if err != nil {
		return nil, err
	}
	s, err := readSeats(ctx, client, name)
	if err == nil && !s.mixed && len(s.Partitions) == n {
		return seat, nil
	}
	_ = seat.Release() // its client repeats it, if that fails
	return nil, err
}

// passing reports whether an error may be gone the next time.
func passing(err error) bool {
	for _, lasting := range []error{mongolock.ErrForeign, mongolock.ErrModeMismatch, mongolock.ErrClosed, mongolock.ErrDisconnected} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	return true
}

// An outcome is why a worker has to leave its seat.
type outcome int

const (
	over   outcome = iota // ctx has ended, or Run fails
	lost                  // the seat is no longer this worker's
	resize                // the number of partitions changes
)

// serve carries out the plan for as long as that is possible.
func (r *run) serve(ctx context.Context, seat *mongolock.Lease) outcome {
	pauses := backoff.New(pauseLeast, pauseMost)
	r.planned, r.waits = State{}, delay{}
	for failures := 0; ; {
		wait, err := r.look(ctx)
		switch {
		case ctx.Err() != nil || r.failure() != nil:
			return over
		case seat.Err() != nil || errors.Is(err, errNoSeat):
			return lost
		case errors.Is(err, ErrResized):
			return resize
		case err == nil:
			failures = 0
			pauses.Reset()
		case !passing(err):
			r.fail(err)
			return over
		default:
			if failures++; failures == 1 {
				r.logger.Warn("assign: could not read who works; going on as before, and trying again", "name", r.name, "error", err)
			}
			wait = pauses.Next()
		}
		backoff.Sleep(ctx, backoff.Jitter(breath))
		timer := time.NewTimer(wait - breath)
		select {
		case <-r.news:
		case <-timer.C:
		case <-seat.Done():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// look reads who works, and goes on with the plan. If the workers have changed it also reads who has
// what, and makes another plan; and so it does now and then until the plan is carried out. It returns
// the time until the next look.
func (r *run) look(ctx context.Context) (next time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	s, err := readSeats(ctx, r.client, r.name)
	if err != nil {
		return 0, err
	}
	if s.resizing {
		return 0, ErrResized
	}
	if len(s.Partitions) != r.n || !slices.ContainsFunc(s.Workers, func(w Worker) bool { return w.ID == r.id }) {
		return 0, errNoSeat // it was removed or changed by hand, or it ran out and this process learns of it now
	}
	settling := s.settling(r.settle)
	calm := settling > 0
	if !r.feed.Live() {
		r.wake() // it may not have heard
	}
	again := !s.same(&r.planned) || calm != r.calm
	if again {
		r.lists = backoff.New(listsLeast, listsMost)
	}
	if again || !(r.whole && r.carriedOut()) && r.listIsOld() {
		if err := r.list(ctx, &s); err != nil {
			return 0, err
		}
		if s.others != "" { // of workers that drain: what they work on is not one of these partitions
			if r.waits.long() {
				r.logger.Warn("assign: waits until a partition of another number is free", "name", r.name, "key", s.others)
			}
			return r.waits.pause(), nil
		}
		r.waits = delay{}
		plan, whole := s.plan(r.id, calm)
		r.plan, r.whole = plan, whole && !again // those that have not seen the change yet may still give up what they have
		r.planned, r.calm = s, calm
	} else {
		s.Partitions = nil // nothing is known of who waits
	}
	r.follow(&s)
	next = s.nextLook()
	if calm {
		next = min(next, settling)
	}
	switch {
	case !r.feed.Live() || !r.carriedOut():
		next = min(next, backoff.Jitter(lookAgain))
	case !r.whole: // a plan that is older, or newer, may leave out what this one leaves to another
		next = min(next, r.lists.Next())
	}
	return next, nil
}

// listIsOld reports whether it is time to read again who has what.
func (r *run) listIsOld() bool { return time.Since(r.listed) >= listsLeast*4/5 }

func (r *run) list(ctx context.Context, s *State) error {
	r.listed = time.Now()
	return s.readParts(ctx, r.client, r.name)
}

// leave hands over all partitions, for as long as Drain says, and stops the rest.
func (r *run) leave(seat *mongolock.Lease) {
	drain, cancel := context.WithTimeout(r.base, r.drain)
	defer cancel()
	r.withdraw()             // nothing begins without a seat: the number may change then
	r.warnOf(seat.Release()) // first of all leases, so that the others plan without this worker
	stops := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() { // again and again, as a notice may be lost, and no worker asks for what it takes for worked on
		for again := true; again; {
			r.announce()
			select {
			case <-stops:
				again = false
			case <-time.After(lookAgain):
			}
		}
		r.announce()
	})
	r.plan = make([]bool, r.n)
	for drain.Err() == nil && r.withdraw() > 0 {
		ctx, cancel := context.WithTimeout(drain, readTime)
		s, err := readSeats(ctx, r.client, r.name)
		alone := err == nil && (len(s.Workers) == 0 || s.resizing || len(s.Partitions) != r.n) // there is no worker to hand them to
		if err == nil && !alone && r.listIsOld() {
			err = r.list(ctx, &s)
		} else {
			s.Partitions = nil
		}
		cancel()
		if err == nil {
			r.follow(&s)
		}
		if alone {
			break
		}
		backoff.Sleep(drain, breath)
		again := time.NewTimer(lookAgain)
		select {
		case <-r.news:
		case <-again.C:
		case <-drain.Done():
		}
		again.Stop()
	}
	close(stops)
	r.stop(ErrStopped)
	telling.Wait()
}

// A delay is the time that others keep a worker from going on. If it is long it is told, once.
type delay struct {
	since time.Time
	told  bool
}

func (d *delay) long() bool {
	if d.since.IsZero() {
		d.since = time.Now()
	}
	if d.told || time.Since(d.since) < tellAfter {
		return false
	}
	d.told = true
	return true
}

// pause returns when to look again.
func (d *delay) pause() time.Duration {
	if d.told {
		return backoff.Jitter(lookAgain)
	}
	return resizePause
}

// release gives the seat back, and tells the others.
func (r *run) release(seat *mongolock.Lease) {
	r.warnOf(seat.Release())
	r.announce()
}

func (r *run) warnOf(err error) {
	if err != nil && !errors.Is(err, mongolock.ErrLost) && !errors.Is(err, mongolock.ErrClosed) {
		r.logger.Warn("assign: a lease is not released yet, retrying in the background", "name", r.name, "error", err)
	}
}

// announce tells the other workers to look.
func (r *run) announce() { announce(r.client, r.name) }

func announce(client *mongolock.Client, name string) {
	feed := client.Feed()
	if feed == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), announceTime)
	defer cancel()
	_ = feed.Notify(ctx, store.Notice{Topic: topic, Key: name, Kind: kindWorkers}) // only a hint: workers also look by themselves
}

// Wake has the work of all partitions called again that has returned nil, in all processes: there is more of it.
// Work under way is not disturbed, and is called again if it returns nil after that. Workers hear of it by the feed. One that hears
// no feed, or has missed some of it, calls such work again at its next look, within a second.
func Wake(ctx context.Context, client *mongolock.Client, name string) error {
	if err := usable("Wake", client, name); err != nil {
		return err
	}
	feed := client.Feed()
	if feed == nil {
		return nil
	}
	if err := feed.Notify(ctx, store.Notice{Topic: topic, Key: name, Kind: kindWake}); err != nil {
		return fmt.Errorf("assign: wake %q: %w", name, err)
	}
	return nil
}

// wake has the work called again that is done.
func (r *run) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.woken)
	r.woken = make(chan struct{})
}

// nextWake returns what the next wake closes.
func (r *run) nextWake() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.woken
}

// hint asks for a look, unless one is due already.
func (r *run) hint() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// fail makes Run end.
func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.why = errors.Join(r.why, err)
	r.hint()
}

// failure returns what makes Run end, or nil.
func (r *run) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}
