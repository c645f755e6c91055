package mongolock

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
	"unicode/utf8"

	"github.com/mongolock/mongolock/internal/engine"
	"github.com/mongolock/mongolock/internal/errtext"
	"github.com/mongolock/mongolock/store"
)

// The limits of options and arguments.
const (
	minTTL     = 100 * time.Millisecond
	maxTTL     = 365 * 24 * time.Hour
	defaultTTL = 30 * time.Second

	maxKey   = 1024 // bytes
	maxNote  = 1024
	maxOwner = 256

	maxPermits = 10_000
)

// An AcquireOption changes one call of Acquire, TryAcquire, AcquireAll, Do or TryDo.
type AcquireOption interface{ applyAcquire(*terms) error }

// A ClientOption changes a Client.
type ClientOption interface{ applyClient(*config) error }

// An Option may be given to New, where it sets the default for every Acquire, or to
// Acquire, where it applies to that call.
type Option interface {
	AcquireOption
	ClientOption
}

type (
	option        func(*terms) error
	acquireOption func(*terms) error
	clientOption  func(*config) error
)

func (o option) applyAcquire(t *terms) error        { return o(t) }
func (o option) applyClient(c *config) error        { return o(&c.terms) }
func (o acquireOption) applyAcquire(t *terms) error { return o(t) }
func (o clientOption) applyClient(c *config) error  { return o(c) }

// TTL sets how long a lease lasts after its last renewal: from 100 ms to a year, by
// default 30 s. A lease is renewed every third of its TTL. After a crash, the key is
// free again within one TTL.
func TTL(d time.Duration) Option {
	return option(func(t *terms) error {
		if d < minTTL || d > maxTTL {
			return fmt.Errorf("mongolock: TTL(%v): must be between %v and a year (%v)", d, minTTL, maxTTL)
		}
		t.TTL = d
		return nil
	})
}

// MaxHold ends the lease (ErrMaxHold) when it has been held for d, counted from the
// claim that was granted. By default a lease is renewed until it is released.
func MaxHold(d time.Duration) Option {
	return option(func(t *terms) error { t.MaxHold = d; return positive("MaxHold", d) })
}

// MaxStall ends the lease (ErrStalled) when its work has not called Progress for d. Work
// that does call it may take as long as it likes. By default, Progress is not required.
func MaxStall(d time.Duration) Option {
	return option(func(t *terms) error { t.MaxStall = d; return positive("MaxStall", d) })
}

// MaxWait makes Acquire give up with ErrHeld after waiting for d. The error is a
// *HeldError with the holder seen last, and says "MaxWait exceeded". It matches no
// context's error, which tells it from a deadline of ctx. If the store has answered no
// claim by then, the error does not match ErrHeld, because nothing is known of the key.
// AcquireAll waits for d in all. By default only ctx ends the wait.
func MaxWait(d time.Duration) Option {
	return option(func(t *terms) error { t.MaxWait = d; return positive("MaxWait", d) })
}

// NoRenewal turns off renewal in the background: the lease runs out one TTL after the grant or Renew.
func NoRenewal() Option {
	return option(func(t *terms) error { t.NoRenewal = true; return nil })
}

// Shared asks for the key as a reader. Any number of readers hold a key together, but
// never together with a writer (a claim without Shared). While a writer waits, no further
// readers are let in.
func Shared() AcquireOption {
	return acquireOption(func(t *terms) error { return share(t, store.Shared, 0) })
}

// OneOf asks for one of n permits of the key, from 1 to 10,000: it is granted if at most n are
// taken with it. Each call counts by its own n, whatever n the holders and other waiters named, so
// a deploy that changes n needs nothing else. A call with a smaller n keeps its turn in line: those
// behind it wait, even if they would fit. A call of Acquire without OneOf waits until all permits
// are free, and meanwhile no more of them are granted. Shared and OneOf cannot be combined.
func OneOf(n int) AcquireOption {
	return acquireOption(func(t *terms) error {
		if n < 1 || n > maxPermits {
			return fmt.Errorf("mongolock: OneOf(%d): must be between 1 and %d", n, maxPermits)
		}
		return share(t, store.Permits, n)
	})
}

// Weight takes w of the n permits of OneOf(n), from 1, the default, to n. It is granted if the
// weights of the holders and w are at most n in sum. A heavy claim is not overtaken: while the first in line
// waits until w permits are free, no claim behind it is granted any. So a lease that takes some
// permits lowers the number for all others while it lasts, and ends no lease for that.
func Weight(w int) AcquireOption {
	return acquireOption(func(t *terms) error {
		if t.Weight = w; w < 1 {
			return fmt.Errorf("mongolock: Weight(%d): must be at least 1", w)
		}
		return nil
	})
}

func checkWeight(t *terms) error {
	switch {
	case t.Weight == 0:
		return nil
	case t.Mode != store.Permits:
		return fmt.Errorf("mongolock: Weight(%d): only with OneOf", t.Weight)
	case t.Weight > t.Limit:
		return fmt.Errorf("mongolock: Weight(%d): there are %d permits", t.Weight, t.Limit)
	}
	return nil
}

func share(t *terms, mode store.Mode, limit int) error {
	if t.Mode != store.Exclusive && (t.Mode != mode || t.Limit != limit) {
		return errors.New("mongolock: Shared and OneOf: only one of them can be given, and only one number of permits")
	}
	t.Mode, t.Limit = mode, limit
	return nil
}

// MinHold keeps the key taken until d after its grant, even if it is released sooner. It is for
// a short job that the timers of several processes start at slightly different times. After a
// crash the key is free after the TTL all the same.
func MinHold(d time.Duration) AcquireOption {
	return acquireOption(func(t *terms) error {
		if d > maxTTL {
			return fmt.Errorf("mongolock: MinHold(%v): must be at most a year (%v)", d, maxTTL)
		}
		t.MinHold = d
		return positive("MinHold", d)
	})
}

// Yielding makes those who wait for the key in other processes tell its holder at once, which learns
// it by Lease.Wanted. It is for long work that can stop between two pieces. While this client hears
// no wake-ups (WithoutFeed, a store without a feed) the holder learns of them by a renewal.
// Yielding cannot be combined with Shared or OneOf. A lease that was resumed does not yield.
func Yielding() AcquireOption {
	return acquireOption(func(t *terms) error { t.Yields = true; return nil })
}

func checkYielding(t *terms) error {
	if t.Yields && t.Mode != store.Exclusive {
		return errors.New("mongolock: Yielding with Shared or OneOf: only an exclusive holder can yield")
	}
	return nil
}

// Note attaches a text to the holder, shown wherever the lock is inspected: at most 1,024
// bytes of UTF-8.
func Note(text string) AcquireOption {
	return acquireOption(func(t *terms) error { t.Note = text; return checkText("Note", text, 0, maxNote) })
}

// WithOwner names this process for people who look at its locks: 1 to 256 bytes of
// UTF-8, by default host/pid. The name is informational only.
func WithOwner(name string) ClientOption {
	return clientOption(func(c *config) error { c.Owner = name; return checkText("WithOwner", name, 1, maxOwner) })
}

// WithLogger sets where the client logs, by default slog.Default(). A lost lease is a
// warning. slog.DiscardHandler turns logging off.
func WithLogger(l *slog.Logger) ClientOption {
	return clientOption(func(c *config) error { c.Logger = l; return notNil("WithLogger", l == nil) })
}

// WithObserver sets an observer, which sees every operation begin and end. Use it for
// metrics and traces.
func WithObserver(o Observer) ClientOption {
	return clientOption(func(c *config) error { c.Observer = face{o}; return notNil("WithObserver", o == nil) })
}

// WithMargin sets the margin: how much earlier than the store's expiry the holder stops
// trusting its lease. It is from 0 to half the TTL, by default the smaller of 1 s and a
// tenth of the TTL. It allows for timers that fire late and for the time that work needs
// to stop.
func WithMargin(d time.Duration) ClientOption {
	return clientOption(func(c *config) error {
		if d < 0 {
			return fmt.Errorf("mongolock: WithMargin(%v): must not be negative", d)
		}
		c.Margin = d
		return nil
	})
}

// WithoutFeed makes waiters poll instead of listening for wake-ups. One read serves all
// keys of the client: every 50 ms at first, and less and less often down to once a
// second. That saves the connection that listening keeps busy. The client still announces
// the keys that it frees, for other clients that listen.
func WithoutFeed() ClientOption {
	return clientOption(func(c *config) error { c.NoFeed = true; return nil })
}

func positive(option string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("mongolock: %s(%v): must be positive", option, d)
	}
	return nil
}

func notNil(option string, isNil bool) error {
	if isNil {
		return fmt.Errorf("mongolock: %s(nil): must not be nil", option)
	}
	return nil
}

// For gives one key of an AcquireAll options of its own, beside those of all keys. It is for one of a
// tenant's three permits and one of twenty for all tenants, or for one key to read and one to write.
// Nothing else takes it.
func For(key string, opts ...AcquireOption) AcquireOption { return forKey{key, opts} }

type forKey struct {
	key  string
	opts []AcquireOption
}

func (f forKey) applyAcquire(*terms) error {
	return fmt.Errorf("mongolock: For(%q): only AcquireAll asks for several keys", f.key)
}

type terms = engine.Terms

// A config holds the options of a client.
type config struct {
	terms
	engine.Config
	noIndex bool
}

func checkText(what, s string, least, most int) error {
	switch {
	case len(s) < least:
		return fmt.Errorf("mongolock: %s is empty", what)
	case len(s) > most:
		return fmt.Errorf("mongolock: %s has %d bytes: at most %d", what, len(s), most)
	case !utf8.ValidString(s):
		return fmt.Errorf("mongolock: %s is not valid UTF-8", what)
	}
	return nil
}

func newConfig(opts []ClientOption) (config, error) {
	c := config{
		terms:  terms{TTL: defaultTTL, Mode: store.Exclusive, Limit: 1},
		Config: engine.Config{Package: "mongolock", Logger: slog.Default(), Margin: -1, Owner: defaultOwner()},
	}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("mongolock: a nil ClientOption"))
			continue
		}
		errs = append(errs, o.applyClient(&c))
	}
	errs = append(errs, c.checkMargin(c.TTL))
	return c, errtext.Join(errs...)
}

// ask returns the terms of one acquisition: the client's, changed by opts.
func (c *config) ask(key string, opts []AcquireOption) (*terms, error) {
	if err := checkText("key", key, 1, maxKey); err != nil {
		return nil, err
	}
	if len(opts) == 0 {
		return &c.terms, nil
	}
	return c.apply(c.terms, opts)
}

func (c *config) apply(t terms, opts []AcquireOption) (*terms, error) {
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("mongolock: a nil AcquireOption"))
			continue
		}
		errs = append(errs, o.applyAcquire(&t))
	}
	errs = append(errs, c.checkMargin(t.TTL), checkYielding(&t), checkWeight(&t))
	return &t, errtext.Join(errs...)
}

func (c *config) checkMargin(ttl time.Duration) error {
	if c.Margin > ttl/2 {
		return fmt.Errorf("mongolock: WithMargin(%v): must be at most half the TTL of %v", c.Margin, ttl)
	}
	return nil
}

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || !utf8.ValidString(host) {
		host = "unknown"
	}
	return fmt.Sprintf("%.200s/%d", host, os.Getpid())
}
