package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
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
	lease   *mongolock.Lease // set once the run begins: then it is not unbegun any more
	told    bool             // what the claim dropped has been told
	ended   bool             // the function has returned, or is not called
	end     *jobs.End        // how the run ended; nil if its lease was lost before: then it runs out
	unsure  bool             // an end that was sent may have been applied
	tell    func(recorded bool)
	until   time.Time // after this the claim may be forgotten
}

func newLeaseStore(s jobs.Store) *leaseStore {
	return &leaseStore{store: s, claims: make(map[string]*tracked), sweep: 64}
}

// An ask takes a claim down to Acquire, in the context, and returns what it tracks. It may be
// read once TryAcquire has returned, unless the context ended first.
type ask struct {
	claim jobs.Claim
	*tracked
}

type askKey struct{}

func (e *leaseStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	a, _ := ctx.Value(askKey{}).(*ask)
	if a == nil {
		return store.Grant{}, fmt.Errorf("schedule: the claim names no due time (%w)", store.ErrNotApplied)
	}
	claim := a.claim
	claim.ID, claim.TTL = c.ID, c.TTL
	claim.Run.Owner = cmp.Or(claim.Run.Owner, c.Owner)
	t := &tracked{claim: claim, until: time.Now().Add(2 * c.TTL)}
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
	t.claim.Back = claim.Dead == nil && claimed.Began.Before(claim.Run.Due)
	e.mu.Unlock()
	return store.Grant{Token: claimed.Number, Left: claimed.Left, Since: claimed.Began}, nil
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

// begin records that the run begins. It reports false if the lease was lost before: then
// the claim is being undone.
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

// told records that what the claim dropped has been told. The next renewal writes it.
func (e *leaseStore) told(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.claims[id]; t != nil {
		t.told = true
	}
}

// ended records how the run ended; the release that follows writes it to the document. Then tell is called, once.
func (e *leaseStore) ended(id string, end *jobs.End, tell func(recorded bool)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.claims[id]; t != nil {
		t.ended, t.end, t.tell = true, end, tell
	}
}

// tell tells whether the end of a run is recorded, unless that was told before.
func (e *leaseStore) tell(id string, recorded bool) {
	e.mu.Lock()
	var tell func(bool)
	if t := e.claims[id]; t != nil {
		tell, t.tell = t.tell, nil
	}
	e.mu.Unlock()
	if tell != nil {
		tell(recorded)
	}
}

// neverBegan reports whether a run is a claim of this process that it has not carried out.
func (e *leaseStore) neverBegan(id string) bool {
	t, ok := e.find(id)
	return ok && t.lease == nil
}

// unrecorded lists the runs of a job, or of all, whose end may or may not be recorded.
func (e *leaseStore) unrecorded(job string) (ids []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, t := range e.claims {
		if (job == "" || t.claim.Job == job) && t.unsure && t.tell != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// endAgain ends a run that this process had, if its end could not be recorded before. It reports whether
// nothing more is to be done for it.
func (e *leaseStore) endAgain(ctx context.Context, id string) bool {
	t, ok := e.find(id)
	if !ok || t.end == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	return e.release(ctx, store.Ref{ID: id}) == nil
}

// endRest does so once for all that are left when the process stops.
func (e *leaseStore) endRest(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callBound)
	defer cancel()
	for _, id := range e.unrecorded("") {
		if failed := e.release(ctx, store.Ref{ID: id}); !errors.Is(failed, store.ErrGone) { // another process goes on with it
			err = errors.Join(err, failed)
		}
	}
	return err
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
		answers[i].Left, answers[i].Err = e.store.Renew(ctx, t.claim.Ref, batch[i].TTL, t.told)
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
	case !t.ended && !errors.Is(t.lease.Err(), mongolock.ErrLost):
		err = errGoesOn // the function itself released the lease: its end is recorded when it returns
	case t.end == nil:
		err = store.ErrGone // it runs out, and whoever sees that goes on with it
	default:
		err = e.record(ctx, t)
	}
	if err == nil || errors.Is(err, store.ErrGone) {
		e.tell(r.ID, err == nil)
		e.forget(r.ID)
	}
	return err
}

// record writes the end of a run. If it is sent again and finds nothing, the past tells whether the first one
// was applied, or another process has gone on with the run.
func (e *leaseStore) record(ctx context.Context, t tracked) error {
	err := e.store.End(ctx, *t.end)
	if !t.unsure && err != nil && !store.IsCertain(err) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if now := e.claims[t.claim.ID]; now != nil {
			now.unsure = true
		}
		return err
	}
	if !errors.Is(err, store.ErrGone) || !t.unsure {
		return err
	}
	all, failed := e.store.Read(ctx, []string{t.claim.Job}, jobs.WithPast)
	if failed != nil {
		return failed
	}
	is := func(r jobs.Run) bool { return r.ID == t.claim.ID && r.Outcome == t.end.Run.Outcome }
	if slices.ContainsFunc(all[0].Past, is) {
		return nil
	}
	return err
}

var errGoesOn = fmt.Errorf("schedule: the run ends when its function returns (%w)", store.ErrNotApplied)

// endAs returns an End of the run with that outcome.
func (t *tracked) endAs(outcome Outcome, err error) jobs.End {
	end := jobs.End{Ref: t.claim.Ref, Run: t.run(), Keep: t.claim.Keep}
	end.Run.Outcome = string(outcome)
	if err != nil {
		end.Run.Error = clip(err.Error())
	}
	return end
}

func (t *tracked) run() jobs.Run {
	r := t.claim.Run
	r.Job, r.ID, r.Number = t.claim.Job, t.claim.ID, t.claimed.Number
	if r.Began.IsZero() {
		r.Began = t.claimed.Began
	}
	return r
}

// Undo leaves a claim whose outcome is unknown as one that has not begun.
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
