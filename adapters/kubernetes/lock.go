package kubelock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/mongolock/mongolock"
)

var (
	// ErrTiming is returned by New for durations with which two electors could lead at once,
	// and by Create and Update if the time that the lease has left shows that. Prolong
	// LeaseDuration, or shorten RenewDeadline.
	ErrTiming = errors.New("kubelock: the LeaseDuration is too short")

	// ErrSpent is returned by Update of an elector that has lost its lease and has not
	// stopped yet.
	ErrSpent = errors.New("kubelock: the lease of this term was lost")
)

// A Client grants leases and shows their holders. *mongolock.Client is one.
type Client interface {
	mongolock.Locker

	// Inspect returns the holders of the key.
	Inspect(ctx context.Context, key string) (mongolock.Status, error)
}

// A Timing has the durations of an election, as leaderelection.LeaderElectionConfig does. A
// zero duration is replaced by the default of client-go.
type Timing struct {
	LeaseDuration time.Duration // the TTL of the lease: 15 s by default
	RenewDeadline time.Duration // for how long a leader tries to renew it: 10 s by default
	RetryPeriod   time.Duration // between two tries: 2 s by default
}

// A Lock implements resourcelock.Interface for one candidate. New makes one.
type Lock struct {
	client   Client
	key      string
	identity string
	timing   Timing

	mu      sync.Mutex       // protects what follows; never held across a call
	lease   *mongolock.Lease // the last lease that was granted
	leading bool             // from "became leader" to "stopped leading"
	over    bool             // the lease belongs to a term that is over
}

var _ resourcelock.Interface = (*Lock)(nil)

// New makes a Lock on key for the candidate with that identity, which is different in every
// process. Both are 1 to 1,024 bytes of UTF-8. It sends nothing yet. The elector must have the durations of
// timing, as that of Lock.Config has.
func New(client Client, key, identity string, timing Timing) (*Lock, error) {
	timing.defaults()
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("kubelock: New: the client is nil"))
	}
	if err := errors.Join(append(errs, checkText("key", key), checkText("identity", identity), timing.check())...); err != nil {
		return nil, err
	}
	return &Lock{client: client, key: key, identity: identity, timing: timing}, nil
}

// checkText refuses what no lease can have: an elector would ask for it for ever.
func checkText(what, text string) error {
	switch {
	case text == "" || len(text) > 1024:
		return fmt.Errorf("kubelock: New: the %s has %d bytes, 1 to 1024 are possible", what, len(text))
	case !utf8.ValidString(text):
		return fmt.Errorf("kubelock: New: the %s is not UTF-8", what)
	}
	return nil
}

func (t *Timing) defaults() {
	for d, by := range map[*time.Duration]time.Duration{&t.LeaseDuration: 15 * time.Second, &t.RenewDeadline: 10 * time.Second, &t.RetryPeriod: 2 * time.Second} {
		if *d == 0 {
			*d = by
		}
	}
}

// check makes sure of what client-go requires, and that a lease can outlast the elector.
// Whether it does is known only when it is granted, because the client knows its margin.
func (t *Timing) check() error {
	switch {
	case t.RetryPeriod < 0 || float64(t.RenewDeadline) <= leaderelection.JitterFactor*float64(t.RetryPeriod):
		return fmt.Errorf("kubelock: New: the RenewDeadline (%v) must be longer than %v times the RetryPeriod (%v)", t.RenewDeadline, leaderelection.JitterFactor, t.RetryPeriod)
	case t.LeaseDuration <= t.patience():
		return fmt.Errorf("%w: New: %v, must be longer than RenewDeadline and RetryPeriod together (%v)", ErrTiming, t.LeaseDuration, t.patience())
	}
	return nil
}

// patience returns how long after a successful Create or Update the elector may consider itself
// the leader without another.
func (t *Timing) patience() time.Duration { return t.RenewDeadline + t.RetryPeriod }

// Config returns the configuration of an elector on this lock. The context that
// OnStartedLeading gets ends with the lease, too.
//
// Before you set ReleaseOnCancel on it, make sure that your work has ended when the context
// that you run the elector with does: ReleaseOnCancel frees the key at once.
func (l *Lock) Config(callbacks leaderelection.LeaderCallbacks) leaderelection.LeaderElectionConfig {
	if work := callbacks.OnStartedLeading; work != nil {
		callbacks.OnStartedLeading = func(ctx context.Context) {
			if lease := l.Lease(); lease != nil {
				ctx = lease.Context(context.WithValue(ctx, leaseKey{}, lease))
			}
			work(ctx)
		}
	}
	return leaderelection.LeaderElectionConfig{
		Lock: l, Name: l.key, Callbacks: callbacks,
		LeaseDuration: l.timing.LeaseDuration, RenewDeadline: l.timing.RenewDeadline, RetryPeriod: l.timing.RetryPeriod,
	}
}

type leaseKey struct{}

// FromContext returns the lease of a leader's context: its Token rises with every term.
func FromContext(ctx context.Context) (*mongolock.Lease, bool) {
	lease, ok := ctx.Value(leaseKey{}).(*mongolock.Lease)
	return lease, ok
}

// Lease returns the lease that this candidate was granted last, or nil. Its Err says whether it
// is still held.
func (l *Lock) Lease() *mongolock.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease
}

// held returns the lease that this candidate holds, or nil. spent reports that a lease was
// lost in a term that has not ended.
func (l *Lock) held() (lease *mongolock.Lease, spent bool) {
	l.mu.Lock()
	lease, spent = l.lease, l.leading
	l.mu.Unlock()
	if lease != nil && lease.Err() == nil { // outside the lock: Err may run code of the application, which asks this Lock
		return lease, false
	}
	return nil, spent
}

// leftOver reports whether the lease is of an earlier term and was not released: a new term has
// a lease, and a token, of its own.
func (l *Lock) leftOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// Get implements resourcelock.Interface: it reads the holder of the key. If there is none, the
// error is a NotFound. But an elector that has lost its lease gets a record without a holder,
// so that it learns of the loss.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	status, err := l.client.Inspect(ctx, l.key)
	if err != nil {
		return nil, nil, err
	}
	var record resourcelock.LeaderElectionRecord
	for _, h := range status.Holders {
		if status.Live(h) {
			record = l.record(h)
		}
	}
	if record.HolderIdentity == "" {
		if _, spent := l.held(); !spent {
			return nil, nil, apierrors.NewNotFound(schema.GroupResource{Group: "mongolock", Resource: "locks"}, l.key)
		}
	}
	raw, err := json.Marshal(record)
	return &record, raw, err
}

// record shows a holder as client-go does. A holder with our identity but not our lease is
// another process, and must look like one to the elector.
func (l *Lock) record(h mongolock.Holder) resourcelock.LeaderElectionRecord {
	identity := h.Note
	if identity == "" {
		identity = h.Owner
	}
	if ours, _ := l.held(); identity == l.identity && (ours == nil || ours.ID() != h.ID) {
		identity += " (" + h.Owner + ", another process)"
	}
	return resourcelock.LeaderElectionRecord{
		HolderIdentity:       identity,
		LeaseDurationSeconds: int(l.timing.LeaseDuration / time.Second),
		AcquireTime:          metav1.NewTime(h.Since),
		RenewTime:            metav1.NewTime(h.ExpireAt.Add(-l.timing.LeaseDuration)),
	}
}

// Create implements resourcelock.Interface: it asks for the key.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

// Update implements resourcelock.Interface: it renews the lease of a leader, asks for the key
// on behalf of another candidate, and releases the lease if the record names no holder.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	lease, spent := l.held()
	switch {
	case record.HolderIdentity == "":
		return l.release()
	case record.HolderIdentity != l.identity:
		return fmt.Errorf("kubelock: the candidate %q cannot elect %q", l.identity, record.HolderIdentity)
	case lease != nil && !l.leftOver():
		return l.renew(ctx, lease)
	case spent:
		return fmt.Errorf("%w: %w", ErrSpent, l.Lease().Err())
	}
	if lease != nil {
		if err := lease.Release(); err != nil {
			return err
		}
	}
	lease, err := l.client.TryAcquire(ctx, l.key, mongolock.TTL(l.timing.LeaseDuration), mongolock.NoRenewal(), mongolock.Note(l.identity))
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.lease, l.over = lease, false
	l.mu.Unlock()
	if outlasts(lease, &l.timing) {
		return nil
	}
	// The grant took long, or no grant can be long enough. A renewal tells which.
	if err := l.renew(ctx, lease); err != nil {
		return errors.Join(err, lease.Release())
	}
	return nil
}

// outlasts reports whether the lease's deadline comes after the moment at which an elector that
// succeeds now would stop.
var outlasts = func(lease *mongolock.Lease, t *Timing) bool { return lease.Remaining() >= t.patience() }

// renew renews the lease until it outlasts the elector.
func (l *Lock) renew(ctx context.Context, lease *mongolock.Lease) error {
	for {
		began := time.Now()
		if err := lease.Renew(ctx); err != nil {
			return err
		}
		if outlasts(lease, &l.timing) {
			return nil
		}
		// If the reply had taken no time, would it be long enough?
		if left, took := lease.Remaining(), time.Since(began); left+took < l.timing.patience() {
			return fmt.Errorf("%w: %v left of %v after a renewal, and the elector needs %v", ErrTiming, left, l.timing.LeaseDuration, l.timing.patience())
		}
	}
}

func (l *Lock) release() error {
	lease := l.Lease()
	if lease == nil {
		return nil
	}
	if err := lease.Release(); err != nil && !errors.Is(err, mongolock.ErrLost) {
		return err
	}
	return nil // a lease that was lost is no longer ours to release
}

// RecordEvent implements resourcelock.Interface. The elector uses it to say when a term begins
// and when it is over. There is no event to record, because the lease is not an object of a
// cluster.
func (l *Lock) RecordEvent(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch event {
	case "became leader":
		l.leading = true
	case "stopped leading":
		l.leading, l.over = false, true
	}
}

// Identity implements resourcelock.Interface.
func (l *Lock) Identity() string { return l.identity }

// Describe implements resourcelock.Interface.
func (l *Lock) Describe() string { return "mongolock/" + l.key }
