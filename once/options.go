package once

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

// An Option changes one call.
type Option interface{ apply(*config) error }

type config struct {
	sum   string // of the content; empty: none was given
	lease []mongolock.AcquireOption
	locks []doclock.Option

	logger *slog.Logger
}

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

// Content names the content that is run, such as the texts of a migration. Its checksum,
// SHA-256, goes into the record, and a later call with other content is refused with a
// ChangedError.
func Content(parts ...[]byte) Option {
	return option(func(c *config) error {
		switch {
		case len(parts) == 0:
			return errors.New("once: Content(): nothing is given")
		case c.sum != "":
			return errors.New("once: Content is given twice: give all parts to one")
		}
		c.sum = sumOf(parts)
		return nil
	})
}

// sumOf returns the checksum of all parts and of where each begins.
func sumOf(parts [][]byte) string {
	h := sha256.New()
	var length [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// With sets options of the lease under which the function runs: mongolock.TTL, Note, MaxHold,
// MaxStall. MaxWait bounds the wait for another process's run. Shared, OneOf and MinHold are
// refused by name: with the first two several processes would run the function at the same time, with
// MinHold the lock would be kept for no purpose.
func With(opts ...mongolock.AcquireOption) Option {
	return option(func(c *config) error { c.lease = append(c.lease, opts...); return nil })
}

// WithLogger sets where the call logs, by default slog.Default(). A lost lease is a warning, and so is a
// record that cannot be saved yet.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) error { c.logger = l; return locks(doclock.WithLogger(l)).apply(c) })
}

// WithOwner names this process in the record, and for people who look at the lock: 1 to 256 bytes of
// UTF-8, by default host/pid.
func WithOwner(name string) Option { return locks(doclock.WithOwner(name)) }

// WithObserver sets an observer. It sees the claim, the lease and the run of the function (OpAcquire,
// OpHold, OpRun), with the name as their key.
func WithObserver(o mongolock.Observer) Option { return locks(doclock.WithObserver(o)) }

// WithMargin sets how long the function's context ends before another process can run it, as
// mongolock's does.
func WithMargin(d time.Duration) Option { return locks(doclock.WithMargin(d)) }

// locks passes an option to the lock of the record.
func locks(o doclock.Option) Option {
	return option(func(c *config) error { c.locks = append(c.locks, o); return nil })
}

const maxName = 256 // bytes

// newConfig checks the arguments of a call together. Nothing is sent.
func newConfig(caller string, coll *mongo.Collection, name string, opts []Option) (config, error) {
	c := config{logger: slog.Default()}
	errs := []error{CheckName(name)}
	if coll == nil {
		errs = append(errs, fmt.Errorf("once: %s: the collection is nil", caller))
	}
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("once: a nil Option"))
			continue
		}
		errs = append(errs, o.apply(&c))
	}
	terms, err := inside.TermsOf(nil, "once", c.lease)
	switch {
	case err != nil:
		err = fmt.Errorf("once: With: %w", err)
	case terms.Mode == store.Shared:
		err = errors.New("once: With(Shared()): several processes would run the function at the same time")
	case terms.Mode != store.Exclusive:
		err = fmt.Errorf("once: With(OneOf(%d)): several processes would run the function at the same time", terms.Limit)
	case terms.MinHold > 0:
		err = fmt.Errorf("once: With(MinHold(%v)): the others would wait for nothing", terms.MinHold)
	}
	if err != nil {
		c.lease = nil // doclock would say it once more
	}
	return c, errors.Join(append(errs, err)...)
}

// CheckName says what is wrong with a name, before anything is connected: for programs whose users choose the
// name. Every call of this package says the same. A name has 1 to 256 bytes of UTF-8.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("once: the name is empty")
	case len(name) > maxName:
		return fmt.Errorf("once: the name has %d bytes: at most %d", len(name), maxName)
	case !utf8.ValidString(name):
		return errors.New("once: the name is not valid UTF-8")
	}
	return nil
}
