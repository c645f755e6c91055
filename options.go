package mongolock

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mongolock/mongolock/store"
)

// The limits of options and arguments.
const (
	minTTL     = 100 * time.Millisecond
	maxTTL     = 365 * 24 * time.Hour
	defaultTTL = 30 * time.Second
	maxMargin  = time.Second // of the default margin

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
		t.ttl = d
		return nil
	})
}

// MaxHold ends the lease (ErrMaxHold) when it has been held for d, counted from the
// claim that was granted. By default a lease is renewed until it is released.
func MaxHold(d time.Duration) Option {
	return option(func(t *terms) error { t.maxHold = d; return positive("MaxHold", d) })
}

// MaxStall ends the lease (ErrStalled) when its work has not called Progress for d. Work
// that does call it may take as long as it likes. By default, Progress is not required.
func MaxStall(d time.Duration) Option {
	return option(func(t *terms) error { t.maxStall = d; return positive("MaxStall", d) })
}

// MaxWait makes Acquire give up with ErrHeld after waiting for d. The error is a
// *HeldError with the holder seen last, and says "MaxWait is over". It matches no
// context's error, which tells it from a deadline of ctx. If the store has answered no
// claim by then, the error does not match ErrHeld, because nothing is known of the key.
// AcquireAll waits for d in all. By default only ctx ends the wait.
func MaxWait(d time.Duration) Option {
	return option(func(t *terms) error { t.maxWait = d; return positive("MaxWait", d) })
}

// NoRenewal turns off renewal in the background: the lease runs out one TTL after the grant or Renew.
func NoRenewal() Option {
	return option(func(t *terms) error { t.noRenewal = true; return nil })
}

// Shared asks for the key as a reader. Any number of readers hold a key together, but never
// beside a writer, which asks without this option. While a writer waits, no further readers
// are let in.
func Shared() AcquireOption {
	return acquireOption(func(t *terms) error { return t.share(store.Shared, 0) })
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
		return t.share(store.Permits, n)
	})
}

// Weight takes w of the n permits of OneOf(n), from 1, the default, to n. It is granted if the
// weights of the holders and w are at most n in sum. A heavy claim is not overtaken: while the first in line
// waits until w permits are free, no claim behind it is granted any. So a lease that takes some
// permits lowers the number for all others while it lasts, and ends no lease for that.
func Weight(w int) AcquireOption {
	return acquireOption(func(t *terms) error {
		if t.weight = w; w < 1 {
			return fmt.Errorf("mongolock: Weight(%d): must be at least 1", w)
		}
		return nil
	})
}

func (t *terms) checkWeight() error {
	switch {
	case t.weight == 0:
		return nil
	case t.mode != store.Permits:
		return fmt.Errorf("mongolock: Weight(%d): only with OneOf", t.weight)
	case t.weight > t.limit:
		return fmt.Errorf("mongolock: Weight(%d): there are %d permits", t.weight, t.limit)
	}
	return nil
}

func (t *terms) share(mode store.Mode, limit int) error {
	if t.mode != store.Exclusive && (t.mode != mode || t.limit != limit) {
		return errors.New("mongolock: Shared and OneOf: only one of them can be given, and only one number of permits")
	}
	t.mode, t.limit = mode, limit
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
		t.minHold = d
		return positive("MinHold", d)
	})
}

// Note attaches a text to the holder, shown wherever the lock is inspected: at most 1,024
// bytes of UTF-8.
func Note(text string) AcquireOption {
	return acquireOption(func(t *terms) error { t.note = text; return checkText("Note", text, 0, maxNote) })
}

// WithOwner names this process for people who look at its locks: 1 to 256 bytes of
// UTF-8, by default host/pid. The name is informational only.
func WithOwner(name string) ClientOption {
	return clientOption(func(c *config) error { c.owner = name; return checkText("WithOwner", name, 1, maxOwner) })
}

// WithLogger sets where the client logs, by default slog.Default(). A lost lease is a
// warning. slog.DiscardHandler turns logging off.
func WithLogger(l *slog.Logger) ClientOption {
	return clientOption(func(c *config) error { c.logger = l; return notNil("WithLogger", l == nil) })
}

// WithObserver sets an observer, which sees every operation begin and end. Use it for
// metrics and traces.
func WithObserver(o Observer) ClientOption {
	return clientOption(func(c *config) error { c.observer = o; return notNil("WithObserver", o == nil) })
}

// WithMargin sets the margin: how long before the store may grant the key again the lease
// ends for its holder. It is from 0 to half the TTL, by default the smaller of 1 s and a
// tenth of the TTL. It allows for timers that fire late and for the time that work needs
// to stop.
func WithMargin(d time.Duration) ClientOption {
	return clientOption(func(c *config) error {
		if d < 0 {
			return fmt.Errorf("mongolock: WithMargin(%v): must not be negative", d)
		}
		c.margin = d
		return nil
	})
}

// WithoutFeed makes waiters poll instead of listening for wake-ups. One read serves all
// keys of the client: every 50 ms at first, and less and less often down to once a
// second. That saves the connection that listening keeps busy. The client still announces
// the keys that it frees, for other clients that listen.
func WithoutFeed() ClientOption {
	return clientOption(func(c *config) error { c.noFeed = true; return nil })
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
