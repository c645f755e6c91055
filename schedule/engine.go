package schedule

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

// An engine is a store of the lease engine whose keys are fires. So the code that renews, ends
// and cleans up leases of locks does the same for runs. It fulfils those duties of a store that
// TryAcquire needs.
type engine struct {
	store Store

	mu     sync.Mutex // protects claims; never held across a store call
	claims map[string]*tracked
	sweep  int // the number of claims at which track removes old ones
}

// A tracked claim holds the data that belongs to an ID, because the engine's calls name only
// the ID.
type tracked struct {
	claim   Claim
	claimed Claimed
	begun   bool      // the function was called, so the fire is not given back
	stays   bool      // if the run is lost it stays in the document, so that another process repeats it
	end     *End      // how the run ended
	until   time.Time // after this the claim may be forgotten
}

func newEngine(s Store) *engine {
	return &engine{store: s, claims: make(map[string]*tracked), sweep: 64}
}

// An ask takes a claim down to Acquire, in the context, and returns what it tracks. It may be
// read once TryAcquire has returned, unless the context ended first.
type ask struct {
	claim  Claim
	repeat bool
	*tracked
}

type askKey struct{}

func (e *engine) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	a, _ := ctx.Value(askKey{}).(*ask)
	if a == nil {
		return store.Grant{}, fmt.Errorf("schedule: the claim names no fire (%w)", store.ErrNotApplied)
	}
	claim := a.claim
	claim.ID, claim.TTL, claim.Owner = c.ID, c.TTL, c.Owner
	t := &tracked{claim: claim, stays: a.repeat, until: time.Now().Add(2 * c.TTL)}
	a.tracked = t
	e.track(t)
	claimed, err := e.store.Claim(ctx, claim)
	if errors.Is(err, ErrNotDue) {
		err = fmt.Errorf("%w (%w, %w)", err, store.ErrNotApplied, errTaken)
	}
	if store.IsCertain(err) {
		e.forget(c.ID)
	}
	if err != nil {
		return store.Grant{}, err
	}
	e.mu.Lock()
	t.claimed = claimed
	e.mu.Unlock()
	return store.Grant{Token: Run{Fire: claim.Fire, Attempt: claim.Attempt}.Token(), Left: claimed.Left, Since: claimed.Began}, nil
}

func (e *engine) track(t *tracked) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.claims[t.claim.ID] = t
	if len(e.claims) < e.sweep {
		return
	}
	for id, old := range e.claims { // claims that could not be ended in time
		if time.Now().After(old.until) {
			delete(e.claims, id)
		}
	}
	e.sweep = max(64, 2*len(e.claims))
}

func (e *engine) forget(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.claims, id)
}

func (e *engine) find(id string) (tracked, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.claims[id]
	if t == nil {
		return tracked{}, false
	}
	return *t, true
}

// begin records that the function is about to be called.
func (e *engine) begin(id string, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.claims[id]; t != nil {
		t.begun, t.claimed.Began = true, at
	}
}

// ended records how the run ended; the release that follows writes it to the document.
func (e *engine) ended(id string, end End) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.claims[id]; t != nil {
		t.end = &end
	}
}

// Renew sends each renewal of the batch, a few at a time.
func (e *engine) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
	answers := make([]store.Renewed, len(batch))
	renew := func(i int) {
		t, ok := e.find(batch[i].ID)
		if !ok {
			answers[i].Err = store.ErrGone
			return
		}
		// Left counts from this call, which starts later than that of the batch: the answer
		// may be too short, never too long.
		answers[i].Left, answers[i].Err = e.store.Renew(ctx, t.claim.Ref, batch[i].TTL)
		if answers[i].Err == nil {
			e.prolong(batch[i].ID, 2*batch[i].TTL)
		}
	}
	const atOnce = 16
	var wg sync.WaitGroup
	for first := range min(atOnce, len(batch)) {
		wg.Go(func() {
			for i := first; i < len(batch); i += atOnce {
				renew(i)
			}
		})
	}
	wg.Wait()
	return answers
}

func (e *engine) prolong(id string, d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.claims[id]; t != nil {
		t.until = time.Now().Add(d)
	}
}

// Release ends a run in the way that ended has recorded. A run that the lease engine gives back
// by itself was granted too late to begin, or was lost while its function ran.
func (e *engine) Release(ctx context.Context, r store.Ref, _ time.Duration) (wanted bool, err error) {
	t, ok := e.find(r.ID)
	if !ok {
		return false, store.ErrGone
	}
	switch {
	case !t.begun:
		var settled bool
		if settled, err = e.store.Undo(ctx, t.claim); err == nil && !settled {
			err = errors.New("schedule: the claim may still be applied")
		}
	case t.stays && (t.end == nil || t.end.Run.Outcome == Died):
		err = store.ErrGone // it stays in the document and runs out, so that another process repeats it
	case t.end != nil:
		err = e.store.Finish(ctx, *t.end)
	default:
		err = e.store.Finish(ctx, t.endAs(Died, nil))
	}
	if err == nil || errors.Is(err, store.ErrGone) {
		e.forget(r.ID)
	}
	return false, err
}

// endAs returns an End of the run with that outcome.
func (t *tracked) endAs(outcome Outcome, err error) End {
	end := End{Ref: t.claim.Ref, Run: t.run(), Slot: t.claimed.Slot, Keep: t.claim.Keep, Dead: t.claimed.Dead}
	end.Run.Outcome = outcome
	if err != nil {
		end.Run.Error = clip(err.Error())
	}
	if t.stays {
		end.Dead = nil // the dead runs wait to be repeated
	}
	return end
}

func (t *tracked) run() Run {
	return Run{Job: t.claim.Job, ID: t.claim.ID, Fire: t.claim.Fire, Attempt: t.claim.Attempt,
		Owner: t.claim.Owner, Began: t.claimed.Began, Slot: t.claimed.Slot}
}

// Undo gives back the fire of a claim whose outcome is unknown.
func (e *engine) Undo(ctx context.Context, claim store.Ref, _ *store.Ref) (settled bool, err error) {
	t, ok := e.find(claim.ID)
	if !ok {
		return true, nil
	}
	if settled, err = e.store.Undo(ctx, t.claim); settled {
		e.forget(claim.ID)
	}
	return settled, err
}

// The rest of a store's duties are about waiting and handing over. Fires need neither.

func (*engine) Transfer(context.Context, store.Ref, store.Claim) (store.Grant, error) {
	return store.Grant{}, errNoSuchDuty
}

func (*engine) Break(context.Context, store.Ref, string, bool) error { return errNoSuchDuty }

func (*engine) Look(context.Context, []string) ([]store.Status, error) { return nil, errNoSuchDuty }

func (*engine) List(context.Context, string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) { yield(store.Status{}, errNoSuchDuty) }
}

var errNoSuchDuty = fmt.Errorf("schedule: fires are neither waited for nor handed over: %w (%w)", errors.ErrUnsupported, store.ErrNotApplied)
