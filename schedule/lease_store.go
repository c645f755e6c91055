package schedule

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/schedule/internal/jobs"
	"github.com/mongolock/mongolock/store"
)

// A leaseStore is a store of leases whose keys are due times. So the code that renews, ends and
// cleans up leases of locks does the same for runs. It fulfils those duties of a store that
// TryAcquire needs.
type leaseStore struct {
	store jobs.Store

	mu     sync.Mutex // protects claims; never held across a store call
	claims map[string]*tracked
	sweep  int // the number of claims at which track removes old ones
}

// A tracked claim holds the data that belongs to an ID, because the engine's calls name only
// the ID.
type tracked struct {
	claim   jobs.Claim
	claimed jobs.Claimed
	lease   *mongolock.Lease // set once the function is called: then the due time is not given back
	stays   bool             // if the run is lost it stays in the document, so that another process repeats it
	end     *jobs.End        // how the run ended
	until   time.Time        // after this the claim may be forgotten
}

func newLeaseStore(s jobs.Store) *leaseStore {
	return &leaseStore{store: s, claims: make(map[string]*tracked), sweep: 64}
}

// An ask takes a claim down to Acquire, in the context, and returns what it tracks. It may be
// read once TryAcquire has returned, unless the context ended first.
type ask struct {
	claim  jobs.Claim
	repeat bool
	*tracked
}

type askKey struct{}

func (e *leaseStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	a, _ := ctx.Value(askKey{}).(*ask)
	if a == nil {
		return store.Grant{}, fmt.Errorf("schedule: the claim names no due time (%w)", store.ErrNotApplied)
	}
	claim := a.claim
	claim.ID, claim.TTL, claim.Owner = c.ID, c.TTL, c.Owner
	t := &tracked{claim: claim, stays: a.repeat, until: time.Now().Add(2 * c.TTL)}
	a.tracked = t
	e.track(t)
	claimed, err := e.store.Claim(ctx, claim)
	if errors.Is(err, jobs.ErrNotDue) {
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
	return store.Grant{Token: Run{Due: claim.Due, Attempt: claim.Attempt}.Token(), Left: claimed.Left, Since: claimed.Began}, nil
}

func (e *leaseStore) track(t *tracked) {
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

func (e *leaseStore) forget(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.claims, id)
}

func (e *leaseStore) find(id string) (tracked, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.claims[id]
	if t == nil {
		return tracked{}, false
	}
	return *t, true
}

// begin records that the function is about to be called. It reports false if the lease was lost before: then the
// due time is being given back.
func (e *leaseStore) begin(r Run) bool {
	_ = r.Lease.Err() // outside the lock: after a pause of the process this ends the lease, and tells an observer
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.claims[r.ID]
	select {
	case <-r.Lease.Done():
		return false
	default:
	}
	if t == nil {
		return false
	}
	t.lease, t.claimed.Began = r.Lease, r.Began
	return true
}

// ended records how the run ended; the release that follows writes it to the document.
func (e *leaseStore) ended(id string, end jobs.End) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.claims[id]; t != nil {
		t.end = &end
	}
}

// Renew sends each renewal of the batch, a few at a time.
func (e *leaseStore) Renew(ctx context.Context, batch []store.Renewal) []store.Renewed {
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
	sideBySide(len(batch), renew)
	return answers
}

// sideBySide calls f for each entry of a batch, for a few at a time.
func sideBySide(entries int, f func(i int)) {
	const atOnce = 16
	every := func(first int) {
		for i := first; i < entries; i += atOnce {
			f(i)
		}
	}
	var wg sync.WaitGroup
	for first := 1; first < min(atOnce, entries); first++ {
		wg.Go(func() { every(first) })
	}
	every(0) // most batches have one entry
	wg.Wait()
}

func (e *leaseStore) prolong(id string, d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.claims[id]; t != nil {
		t.until = time.Now().Add(d)
	}
}

// Release ends a run in the way that ended has recorded. A run that the lease engine gives back
// by itself was granted too late to begin, or was lost while its function ran.
func (e *leaseStore) Release(ctx context.Context, of store.ReleaseRequest) (store.ReleaseResult, error) {
	return store.ReleaseResult{}, e.release(ctx, of.Ref)
}

func (e *leaseStore) release(ctx context.Context, r store.Ref) (err error) {
	t, ok := e.find(r.ID)
	if !ok {
		return store.ErrGone
	}
	switch {
	case t.lease == nil:
		var settled bool
		if settled, err = e.store.Undo(ctx, t.claim); err == nil && !settled {
			err = errors.New("schedule: the claim may still be applied")
		}
	case t.end == nil && !errors.Is(t.lease.Err(), mongolock.ErrLost):
		err = errGoesOn // the function itself released the lease: its end is recorded when it returns
	case t.stays && (t.end == nil || t.end.Run.Outcome == string(Died)):
		err = store.ErrGone // it stays in the document and runs out, so that another process repeats it
	case t.stays && t.end.Run.Outcome == string(Stopped):
		err = e.store.Leave(ctx, *t.end)
	case t.end != nil:
		err = e.store.Finish(ctx, *t.end)
	default:
		err = e.store.Finish(ctx, t.endAs(Died, nil))
	}
	if err == nil || errors.Is(err, store.ErrGone) {
		e.forget(r.ID)
	}
	return err
}

var errGoesOn = fmt.Errorf("schedule: the run ends when its function returns (%w)", store.ErrNotApplied)

// endAs returns an End of the run with that outcome.
func (t *tracked) endAs(outcome Outcome, err error) jobs.End {
	end := jobs.End{Ref: t.claim.Ref, Run: t.run(), Slot: t.claimed.Slot, Keep: t.claim.Keep, Dead: t.claimed.Dead}
	end.Run.Outcome = string(outcome)
	if err != nil {
		end.Run.Error = clip(err.Error())
	}
	if t.stays {
		end.Dead = nil // the dead runs wait to be repeated
	}
	return end
}

func (t *tracked) run() jobs.Run {
	return jobs.Run{Job: t.claim.Job, ID: t.claim.ID, Due: t.claim.Due, Attempt: t.claim.Attempt,
		Owner: t.claim.Owner, Began: t.claimed.Began, Slot: t.claimed.Slot}
}

// Undo gives back the due time of a claim whose outcome is unknown.
func (e *leaseStore) Undo(ctx context.Context, claim store.Ref, _ *store.Ref) (settled bool, err error) {
	t, ok := e.find(claim.ID)
	if !ok {
		return true, nil
	}
	if settled, err = e.store.Undo(ctx, t.claim); settled {
		e.forget(claim.ID)
	}
	return settled, err
}

// The rest of a store's duties are about waiting and handing over. Due times need neither.

func (*leaseStore) Transfer(context.Context, store.Ref, store.Claim) (store.Grant, error) {
	return store.Grant{}, errNoSuchDuty
}

func (*leaseStore) Leave(context.Context, string, store.Place) (store.Status, error) {
	return store.Status{}, errNoSuchDuty
}

func (*leaseStore) Break(context.Context, store.Ref, string, bool) error { return errNoSuchDuty }

func (*leaseStore) Look(context.Context, []string) ([]store.Status, error) { return nil, errNoSuchDuty }

func (*leaseStore) List(context.Context, string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) { yield(store.Status{}, errNoSuchDuty) }
}

var errNoSuchDuty = fmt.Errorf("schedule: due times are neither waited for nor handed over: %w (%w)", errors.ErrUnsupported, store.ErrNotApplied)
