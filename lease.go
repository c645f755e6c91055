package mongolock

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/mongolock/mongolock/internal/engine"
	"github.com/mongolock/mongolock/internal/errtext"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

// A Lease is one acquisition of a key. It is renewed in the background until it is
// released, detached or lost, or until MaxHold. All methods are safe for concurrent
// use. docs/internals/lease.md explains the protocol.
type Lease struct{ hold *engine.Hold }

// Key returns the key that the lease holds.
func (l *Lease) Key() string { return l.hold.Ref.Key }

// Token returns the lease's fencing token: greater than that of every earlier lease of the key,
// and constant. Send it with every write to the resource (see package fence): only the resource
// can refuse a holder that was paused past its lease.
func (l *Lease) Token() int64 { return l.hold.Token }

// ID returns the name of this acquisition. A process that knows an ID can end the lease: do not
// log it.
func (l *Lease) ID() string { return l.hold.Ref.ID }

// Context returns a context that ends with parent or with the lease, whichever is first.
// context.Cause tells why it ended. Its own Err reads the clock first, so a process that was
// paused past its lease learns of it at once. Contexts derived from it learn when the timer
// fires.
func (l *Lease) Context(parent context.Context) context.Context {
	_ = l.Err() // ends a lease that ran out, even if its timer has not fired yet
	return l.hold.Contexts(l).Context(parent)
}

// Done returns a channel that is closed when the lease ends. A lease that is not renewed ends
// one margin before the key can be granted again.
func (l *Lease) Done() <-chan struct{} { return l.hold.Done() }

// Wanted returns a channel that is closed once another caller waits for the key, in this process
// or elsewhere. It stays closed, even if the waiter gives up; after the lease's end it says nothing.
// Another process that waits tells the holder at once if the lease was acquired with Yielding.
// Otherwise a renewal shows that it waits, within a third of the TTL: not on MongoDB one that
// is sent together with others. A refused TryAcquire does not wait.
func (l *Lease) Wanted() <-chan struct{} { return l.hold.Wanted() }

// Err returns nil while the lease is held. Afterwards it says why the lease ended: ErrReleased,
// ErrDetached, ErrClosed, or an error matching ErrLost. It reads the clock itself, so a process
// that was paused learns of the end at once.
func (l *Lease) Err() error { return l.hold.Err() }

// Remaining returns how long the lease may be trusted without another renewal. It is zero
// once the lease has ended.
func (l *Lease) Remaining() time.Duration {
	if l.Err() != nil {
		return 0
	}
	left, _ := l.hold.Glance()
	return left
}

// Progress tells the lease that its work goes on. Only a lease with MaxStall needs it, and it
// costs no command. It does not bring back a lease that has ended.
func (l *Lease) Progress() { l.hold.Progress() }

// Renew renews the lease now. With NoRenewal nothing else renews it. If ctx ends first, Renew
// returns and the renewal goes on in the background.
func (l *Lease) Renew(ctx context.Context) error {
	if err := l.Err(); err != nil && ctx.Err() == nil {
		return l.fault("renew", err)
	}
	return l.hold.Renew(ctx)
}

// Release ends the lease and frees the key. It takes at most 5 s.
//
// It returns nil if the key is freed, now or by an earlier Release. It returns ErrDetached
// after Detach, and an error matching ErrLost if the lease was lost before; then no other lease
// is affected. Any other error is the store's, which also matches ErrLost if the lease was lost
// before. After such an error Release may be called again, and it goes on in the background
// until it succeeds or the TTL is over.
func (l *Lease) Release() error { return l.hold.Release() }

// Detach renews the lease once and ends it here without freeing the key. With the ticket any
// process can Resume it within the TTL: keep the ticket as safe as the lease itself. After an
// error the lease goes on as before, unless Err says otherwise. A lease that shares its key, or
// that belongs to a scheduled run, cannot be detached (errors.ErrUnsupported).
func (l *Lease) Detach(ctx context.Context) (text string, err error) {
	t := l.hold.Terms
	if t.Mode != store.Exclusive {
		return "", l.fault("detach", fmt.Errorf("%w: the lease is %s, and only one that has its key alone can be resumed", errors.ErrUnsupported, t.Mode))
	}
	why, is := l.hold.Values().Value(inside.Unresumable{}).(error) // of the package that acquired the lease
	if is {
		return "", l.fault("detach", why)
	}
	if err := l.Renew(ctx); err != nil {
		return "", fmt.Errorf("mongolock: detach: %w", err)
	}
	keep, err := l.hold.Detach()
	if err != nil {
		return "", l.fault("detach", err)
	}
	return ticket{Key: l.Key(), ID: l.ID(), Token: l.Token(), TTL: t.TTL, Keep: keep, Note: t.Note}.String(), nil
}

func (l *Lease) fault(op string, err error) error {
	return &engine.Fault{Op: op, Key: l.Key(), Err: err}
}

// String shows the lease's key, token and state, and never its ID.
func (l *Lease) String() string { return l.hold.String() }

// Format prints String, whatever the verb. So no verb shows the ID.
func (l *Lease) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, l.String()) }

// LogValue shows the lease's key, token and state, and never its ID.
func (l *Lease) LogValue() slog.Value { return l.hold.LogValue() }

// run calls fn under the lease and gives the lease back, whatever fn does.
func (l *Lease) run(ctx context.Context, fn func(context.Context, *Lease) error) (err error) {
	defer func() {
		ended := l.Err() // asked before Release ends it
		switch releaseErr := l.Release(); {
		case ended != nil || releaseErr == nil:
		case errors.Is(releaseErr, ErrLost):
			ended = releaseErr // which was not known before
		default:
			l.hold.Logger().Warn("mongolock: release failed, going on in the background", "lease", l, "error", releaseErr)
		}
		if ended != nil && !errors.Is(ended, ErrReleased) && !errors.Is(ended, ErrDetached) {
			err = errtext.Join(err, ended)
		}
	}()
	return fn(l.Context(ctx), l)
}

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
			err = errtext.Errorf("mongolock: acquire all: %w", lost)
		}
	}
	if err != nil {
		return nil, errtext.Join(err, leases.giveUp())
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
		if refused != nil && !errors.Is(refused, ErrHeld) && !errors.Is(refused, engine.ErrUnsettled) {
			return granted, refused
		}
	}
	leases, err := s.inOrder(ctx, granted)
	if errors.As(err, new(*engine.CallerGone)) && !errors.Is(err, ErrHeld) && !errors.Is(err, ErrClosed) && len(leases) == len(granted) && errors.Is(refused, ErrHeld) {
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
	if i := slices.IndexFunc(s.keys, c.engine.Unsettled); i >= 0 {
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
		bounded, cancel := context.WithDeadlineCause(ctx, s.patience, engine.ErrPatience)
		defer cancel()
		ctx = bounded
	}
	within, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	leases, errs := make(Leases, len(keys)), make([]error, len(keys))
	engine.SideBySide(len(keys), func(i int) bool {
		key := keys[i]
		leases[i], errs[i] = s.locker.TryAcquire(within, key, slices.Concat(s.opts, s.own[key])...)
		if errs[i] != nil {
			time.AfterFunc(engine.AbandonedFor, func() { cut(errs[i]) })
		}
		return errs[i] == nil
	})
	first := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if first < 0 {
		return leases, nil
	}
	later := slices.DeleteFunc(slices.Clone(leases[first:]), func(l *Lease) bool { return l == nil })
	later.discard()
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
				err = errtext.Errorf("mongolock: acquire all: while waiting for %s: %w", errtext.Key(key), lost)
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
		t, err := c.config.ask(key, slices.Concat(opts, own[key]))
		if err != nil {
			return err
		}
		if err := c.nested(ctx, key); err != nil && t.Mode == store.Exclusive {
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
	t := terms{Mode: store.Exclusive}
	if c := within(l); c != nil {
		t = c.config.terms
	}
	for _, o := range opts {
		if o == nil || o.applyAcquire(&t) != nil {
			return until // the first call of Acquire reports the bad option
		}
	}
	if t.MaxWait > 0 {
		until = time.Now().Add(t.MaxWait)
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
	given := make(chan []error, 1)
	all[0].hold.Go(func() { given <- engine.ReleaseAll(all.holds(), true) })
	select {
	case errs := <-given:
		return errtext.Join(slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, ErrLost) })...)
	case <-time.After(engine.AbandonedFor):
		return nil
	}
}

// discard ends leases that no caller has received, and frees their keys in the background.
func (all Leases) discard() {
	if len(all) > 0 {
		all[0].hold.Go(func() { engine.ReleaseAll(all.holds(), true) })
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
			errs = append(errs, fmt.Errorf("%s: %w", errtext.Key(l.Key()), err))
		}
	}
	return errtext.Join(errs...)
}

// Release ends all leases and then frees their keys, 64 at a time. A release of several that is not answered
// within two seconds goes on in the background. Release joins the errors of the single releases, and may be
// called again.
func (all Leases) Release() error { return errtext.Join(engine.ReleaseAll(all.holds(), false)...) }

func (all Leases) holds() []*engine.Hold {
	hs := make([]*engine.Hold, len(all))
	for i, l := range all {
		hs[i] = l.hold
	}
	return hs
}

// ticketMark begins every ticket. Its digit is the version of the format.
const ticketMark = "mongolock1."

// A ticket is the text that Detach returns, as JSON encoded in base64.
type ticket struct {
	Key   string        `json:"k"`
	ID    string        `json:"i"`
	Token int64         `json:"t"`
	TTL   time.Duration `json:"d"`
	Keep  time.Duration `json:"h,omitempty"` // what was left of MinHold
	Note  string        `json:"n,omitempty"`
}

func (t ticket) String() string {
	text, _ := json.Marshal(t) // strings and numbers: it cannot fail
	return ticketMark + base64.RawURLEncoding.EncodeToString(text)
}

func parseTicket(s string) (ticket, error) {
	var t ticket
	body, ok := strings.CutPrefix(s, ticketMark)
	if !ok {
		return t, errors.New("mongolock: resume: not a Detach ticket, or made by a newer version")
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err == nil {
		err = errtext.Join(checkText("key", t.Key, 1, maxKey), checkText("ID", t.ID, 1, maxKey), checkText("note", t.Note, 0, maxNote))
	}
	if err == nil && (t.TTL < minTTL || max(t.TTL, t.Keep) > maxTTL || t.Keep < 0) {
		err = fmt.Errorf("TTL of %v, MinHold of %v", t.TTL, t.Keep)
	}
	if err != nil {
		return t, fmt.Errorf("mongolock: resume: broken ticket: %w", err)
	}
	return t, nil
}

// Resume takes over a lease that was ended by Detach, in any process. The new lease has the
// same key and token, and an ID of its own. If two calls resume one ticket, one succeeds. The
// other gets ErrLost, as does a call that comes after the TTL (through a mongos: after another
// process has had the key). The TTL is that of the old lease unless an option sets it. What was left
// of its MinHold begins again. The client's other defaults apply. If the outcome is unknown the ticket
// may be tried again.
func (c *Client) Resume(ctx context.Context, text string, opts ...Option) (*Lease, error) {
	ticket, err := parseTicket(text)
	if err != nil {
		return nil, err
	}
	base := c.config.terms
	base.TTL, base.Note, base.MinHold = ticket.TTL, ticket.Note, ticket.Keep
	each := make([]AcquireOption, len(opts))
	for i, o := range opts {
		if o == nil {
			return nil, errors.New("mongolock: resume: a nil Option")
		}
		each[i] = o
	}
	t, err := c.config.apply(base, each)
	if err != nil {
		return nil, err
	}
	if err := c.engine.Ready(ctx, "resume", ticket.Key); err != nil {
		return nil, err
	}
	ctx, end := c.engine.Observe(ctx, engine.OpTransfer, ticket.Key, t)
	hold, err := c.engine.Resume(ctx, store.Ref{Key: ticket.Key, ID: ticket.ID, Mode: store.Exclusive}, ticket.Token, t)
	if errors.Is(err, store.ErrGone) || errors.As(err, new(*store.BrokenError)) {
		err = &engine.Fault{Op: "resume", Key: ticket.Key, Err: fmt.Errorf("%w: %w", ErrLost, err)}
	} else if err != nil {
		err = engine.Failed("resume", ticket.Key, err)
	}
	end(engine.Outcome{Err: err, Token: ticket.Token, Count: 1})
	if err != nil {
		return nil, err
	}
	return &Lease{hold}, nil
}
