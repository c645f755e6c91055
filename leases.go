package mongolock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/cleaner"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

// Leases are the leases that AcquireAll grants: one for each key, in the order in which
// the keys were given. Each may also be used by itself.
type Leases []*Lease

// AcquireAll acquires several keys: all of them or none. It first tries all keys side by side,
// 64 at a time. If one of them is not free, it keeps those that precede that key in byte order,
// gives back the rest, and waits for one key after the other from there. So callers with keys
// in common cannot deadlock, whatever the order in keys, and no key is kept from others while
// AcquireAll waits for an earlier one. While it waits for one key it holds the earlier ones:
// ask for few keys, and hold them for a short time. It calls l on goroutines of its own, so a panic
// of l ends the process.
//
// If a key is not granted, or a lease is lost meanwhile, AcquireAll gives back the keys
// that were granted, and the error says which key failed and why. The options apply to
// each key, but those in a For to its key alone; a MaxWait applies to all keys together.
func AcquireAll(ctx context.Context, l Locker, keys []string, opts ...AcquireOption) (Leases, error) {
	sorted, err := usableKeys(l, keys)
	if err != nil {
		return nil, err
	}
	opts, own, err := apart(keys, opts)
	if err != nil {
		return nil, err
	}
	if c, ok := l.(*Client); ok { // a Locker that wraps a client is not unwrapped: its Acquire may do more
		if err := c.nestedAll(ctx, sorted, opts, own); err != nil {
			return nil, err
		}
	}
	s := several{locker: l, keys: sorted, opts: opts, own: own, patience: patienceIn(l, opts)}
	leases, err := s.acquire(ctx)
	if err == nil {
		if lost := leases.Err(); lost != nil {
			err = fmt.Errorf("mongolock: acquire all: %w", lost)
		}
	}
	if err != nil {
		return nil, errors.Join(err, leases.giveUp())
	}
	place := make(map[string]int, len(keys))
	for i, key := range keys {
		place[key] = i
	}
	slices.SortFunc(leases, func(a, b *Lease) int { return place[a.Key()] - place[b.Key()] })
	return leases, nil
}

// A several is what one call of AcquireAll asks for.
type several struct {
	locker   Locker
	keys     []string // in byte order
	opts     []AcquireOption
	own      map[string][]AcquireOption // options of single keys
	patience time.Time                  // until when all keys are waited for; zero: without limit
}

// acquire asks for the keys. With an error it returns the leases that were granted all the same.
func (s *several) acquire(ctx context.Context) (Leases, error) {
	if inside.Waits != nil {
		inside.Waits(ctx, s.locker, s.keys)
	}
	var granted Leases
	var refused error
	if settled := s.settled(); len(settled) > 1 {
		granted, refused = s.tryAll(ctx, settled)
		if refused != nil && !errors.Is(refused, ErrHeld) && !errors.Is(refused, cleaner.ErrUnsettled) {
			return granted, refused
		}
	}
	leases, err := s.inOrder(ctx, granted)
	if errors.As(err, new(*abandoned)) && !errors.Is(err, ErrHeld) && !errors.Is(err, ErrClosed) && len(leases) == len(granted) && errors.Is(refused, ErrHeld) {
		err = fmt.Errorf("%w; before: %w", err, refused) // the key is known to be held, as for an Acquire that has waited
	}
	return leases, err
}

// settled returns the keys before the first that an earlier claim of the same client may hold: an
// attempt at that one would wait, with later keys in hand.
func (s *several) settled() []string {
	c := within(s.locker)
	if c == nil {
		return s.keys
	}
	if i := slices.IndexFunc(s.keys, c.cleaner.May); i >= 0 {
		return s.keys[:i]
	}
	return s.keys
}

// left returns what is left of a MaxWait; negative: there is none.
func (s *several) left() time.Duration {
	if s.patience.IsZero() {
		return -1
	}
	return max(0, time.Until(s.patience))
}

// tryAll asks for keys side by side, once. When one is refused it begins no more, and cuts off those that
// are not answered soon. It returns the leases of the keys before the first that was not granted, and why
// one was not. Leases of later keys are given back: others may hold the earlier key and wait for these.
func (s *several) tryAll(ctx context.Context, keys []string) (Leases, error) {
	if !s.patience.IsZero() {
		bounded, cancel := context.WithDeadlineCause(ctx, s.patience, errPatience)
		defer cancel()
		ctx = bounded
	}
	within, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	leases, errs := make(Leases, len(keys)), make([]error, len(keys))
	sideBySide(len(keys), func(i int) bool {
		key := keys[i]
		leases[i], errs[i] = s.locker.TryAcquire(within, key, slices.Concat(s.opts, s.own[key])...)
		if errs[i] != nil {
			time.AfterFunc(abandonedFor, func() { cut(errs[i]) })
		}
		return errs[i] == nil
	})
	first := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if first < 0 {
		return leases, nil
	}
	later := slices.DeleteFunc(slices.Clone(leases[first:]), func(l *Lease) bool { return l == nil })
	later.giveBackUnseen()
	if refused := context.Cause(within); refused != nil && ctx.Err() == nil {
		return leases[:first:first], refused
	}
	return leases[:first:first], errs[first]
}

// inOrder waits for one key after the other, under the leases of those before.
func (s *several) inOrder(ctx context.Context, leases Leases) (Leases, error) {
	held, lose := context.WithCancelCause(ctx) // ends with ctx, and with every lease granted so far
	defer lose(nil)
	loseWith := func(lease *Lease) {
		under := lease.Context(held) // of held, not of the one before: many leases must not make a long chain
		context.AfterFunc(under, func() { lose(context.Cause(under)) })
	}
	if len(leases) < len(s.keys) {
		for _, lease := range leases {
			loseWith(lease)
		}
	}
	for _, key := range s.keys[len(leases):] {
		each := slices.Concat(s.opts, s.own[key])
		if left := s.left(); left >= 0 {
			each = append(each, MaxWait(max(left, time.Millisecond))) // enough for one try
		}
		lease, err := s.locker.Acquire(held, key, each...)
		if err != nil {
			if lost := leases.Err(); lost != nil && ctx.Err() == nil {
				err = fmt.Errorf("mongolock: acquire all: while waiting for %q: %w", key, lost)
			}
			return leases, err
		}
		leases = append(leases, lease)
		if len(leases) < len(s.keys) {
			loseWith(lease)
		}
	}
	return leases, nil
}

// nestedAll refuses keys that the caller holds already, before any of the others is acquired.
func (c *Client) nestedAll(ctx context.Context, keys []string, opts []AcquireOption, own map[string][]AcquireOption) error {
	for _, key := range keys {
		t, err := c.ask(key, slices.Concat(opts, own[key]))
		if err != nil {
			return err
		}
		if err := c.nested(ctx, key); err != nil && !t.shares() {
			return err
		}
	}
	return nil
}

// usableKeys returns keys in byte order, or an error if a key is bad or given twice.
func usableKeys(l Locker, keys []string) ([]string, error) {
	switch {
	case l == nil:
		return nil, errors.New("mongolock: AcquireAll: the locker is nil")
	case len(keys) == 0:
		return nil, errors.New("mongolock: AcquireAll: no keys")
	}
	sorted := slices.Sorted(slices.Values(keys))
	for i, key := range sorted {
		if err := checkText("key", key, 1, maxKey); err != nil {
			return nil, err
		}
		if i > 0 && key == sorted[i-1] {
			return nil, fmt.Errorf("mongolock: AcquireAll: the key %q is given twice", key)
		}
	}
	return sorted, nil
}

// apart parts the options of single keys from those of all.
func apart(keys []string, opts []AcquireOption) (all []AcquireOption, own map[string][]AcquireOption, err error) {
	for _, o := range opts {
		f, ok := o.(forKey)
		if !ok {
			all = append(all, o)
			continue
		}
		if !slices.Contains(keys, f.key) {
			return nil, nil, fmt.Errorf("mongolock: AcquireAll: For(%q): it is not among the keys", f.key)
		}
		if !patienceIn(nil, f.opts).IsZero() {
			return nil, nil, fmt.Errorf("mongolock: AcquireAll: For(%q): MaxWait is for all keys together", f.key)
		}
		if own == nil {
			own = make(map[string][]AcquireOption)
		}
		own[f.key] = append(own[f.key], f.opts...)
	}
	return all, own, nil
}

// patienceIn returns until when AcquireAll waits for all keys together; zero: without limit.
func patienceIn(l Locker, opts []AcquireOption) (until time.Time) {
	t := terms{mode: store.Exclusive}
	if c := within(l); c != nil {
		t = c.terms
	}
	for _, o := range opts {
		if o == nil || o.applyAcquire(&t) != nil {
			return until // the first call of Acquire reports the bad option
		}
	}
	if t.maxWait > 0 {
		until = time.Now().Add(t.maxWait)
	}
	return until
}

// giveUp releases the leases that were granted, and waits for that no longer than for a claim
// whose caller has left. A lost lease among them is already in the caller's error. A release that
// fails, or takes longer, goes on in the background.
func (all Leases) giveUp() error {
	if len(all) == 0 {
		return nil
	}
	all.unseen()
	given := make(chan struct{})
	all[0].holding.client.background.Run(func() {
		defer close(given)
		giveBackAll(all.holdings())
	})
	select {
	case <-given:
	case <-time.After(abandonedFor):
		return nil
	}
	var errs []error
	for _, l := range all {
		if done, err := l.holding.outcome(); !done || !errors.Is(err, ErrLost) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// giveBackUnseen ends leases that no caller has received, and frees their keys in the background.
func (all Leases) giveBackUnseen() {
	if len(all) == 0 {
		return
	}
	all.unseen()
	all[0].holding.client.background.Run(func() { giveBackAll(all.holdings()) })
}

// unseen ends leases that no caller has received: MinHold does not keep their keys.
func (all Leases) unseen() {
	for _, l := range all {
		l.holding.unseen.Store(true)
		l.holding.end(ErrReleased)
	}
}

// Context returns a context that ends with parent or with any of the leases, whichever
// is first. context.Cause tells why it ended. Its Err reads the clock first, as the
// context of a single lease does.
func (all Leases) Context(parent context.Context) context.Context {
	for _, l := range all {
		parent = l.Context(parent)
	}
	return &leasesContext{Context: parent, leases: all}
}

// A leasesContext is a context that ends with any of several leases.
type leasesContext struct {
	context.Context
	leases Leases
}

// Err reads the clock for every lease: a lease that ran out cancels the context.
func (lc *leasesContext) Err() error {
	for _, l := range lc.leases {
		_ = l.Err()
	}
	return lc.Context.Err()
}

// Err returns nil while all leases are held. Afterwards it joins the reasons why leases ended.
func (all Leases) Err() error {
	var errs []error
	for _, l := range all {
		if err := l.Err(); err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", l.Key(), err))
		}
	}
	return errors.Join(errs...)
}

// Release ends all leases and then frees their keys, 64 at a time. A release of several that is not answered
// within two seconds goes on in the background. Release joins the errors of the single releases, and may be
// called again.
func (all Leases) Release() error {
	for _, l := range all {
		l.holding.end(ErrReleased)
	}
	giveBackAll(all.holdings())
	var errs []error
	for _, l := range all {
		_, err := l.holding.outcome()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (all Leases) holdings() []*holding {
	hs := make([]*holding, len(all))
	for i, l := range all {
		hs[i] = l.holding
	}
	return hs
}
