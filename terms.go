package mongolock

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
	"unicode/utf8"

	"github.com/mongolock/mongolock/store"
)

// terms say what one acquisition asks for. They never change: an acquisition without
// options shares the terms of its client.
type terms struct {
	ttl       time.Duration
	maxHold   time.Duration // 0: none
	maxStall  time.Duration // 0: none
	maxWait   time.Duration // 0: none
	minHold   time.Duration // 0: none
	note      string
	noRenewal bool
	yields    bool
	mode      store.Mode
	limit     int // of permits; 1 for exclusive, 0 for shared
	weight    int // how many of the permits; 0: Weight was not given
}

// A config holds the options of a client.
type config struct {
	terms
	owner    string
	logger   *slog.Logger
	observer Observer
	margin   time.Duration // negative: the default, which depends on the TTL

	noFeed, noIndex bool
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
	c := config{terms: terms{ttl: defaultTTL, mode: store.Exclusive, limit: 1}, logger: slog.Default(), margin: -1, owner: defaultOwner()}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("mongolock: a nil ClientOption"))
			continue
		}
		errs = append(errs, o.applyClient(&c))
	}
	errs = append(errs, c.checkMargin(c.ttl))
	return c, errors.Join(errs...)
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
	errs = append(errs, c.checkMargin(t.ttl), t.checkYielding(), t.checkWeight())
	return &t, errors.Join(errs...)
}

func (c *config) checkMargin(ttl time.Duration) error {
	if c.margin > ttl/2 {
		return fmt.Errorf("mongolock: WithMargin(%v): must be at most half the TTL of %v", c.margin, ttl)
	}
	return nil
}

// marginFor returns the margin of a lease with that TTL.
func (c *config) marginFor(ttl time.Duration) time.Duration {
	if c.margin >= 0 {
		return c.margin
	}
	return min(maxMargin, ttl/10)
}

// shares reports whether others may hold the key at the same time.
func (t *terms) shares() bool { return t.mode != store.Exclusive }

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || !utf8.ValidString(host) {
		host = "unknown"
	}
	return fmt.Sprintf("%.200s/%d", host, os.Getpid())
}
