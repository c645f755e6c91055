package webdavlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/webdav"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/pathlock"
)

const (
	lease     = 30 * time.Second // the timeout of locks that this process refreshes
	callBound = 10 * time.Second // bounds each call: the interface has no context
)

// A LockSystem is a webdav.LockSystem on a storage of package pathlock. It is safe for
// concurrent use. New makes one; Close it.
type LockSystem struct {
	locks *pathlock.Tree
	holds *pathlock.Tree // the locks that a request uses at this moment: each token as a path
	etag  func(ctx context.Context, name string) (string, error)
	owner []byte // of the locks that the handler takes for itself

	mu  sync.Mutex                // protects own
	own map[string]*pathlock.Hold // locks that the handler took for itself, by token
}

var _ webdav.LockSystem = (*LockSystem)(nil)

// An Option changes a LockSystem.
type Option interface{ apply(*config) error }

type config struct {
	tree  []pathlock.Option // of the locks
	both  []pathlock.Option // also of what is in use
	owner []byte
	etag  func(ctx context.Context, name string) (string, error)
}

type option func(*config) error

func (o option) apply(c *config) error { return o(c) }

// WithAlias sets a function that maps each name to the one it stands for. See
// pathlock.WithAlias.
func WithAlias(alias func(name string) (string, error)) Option {
	return option(func(c *config) error {
		if alias == nil {
			return errors.New("webdavlock: WithAlias(nil): must not be nil")
		}
		c.tree = append(c.tree, pathlock.WithAlias(alias))
		return nil
	})
}

// WithETag sets the function that checks If headers with entity tags. It returns the entity tag
// of a name as the handler's ETag header shows it, quotes included, and "" if nothing has that
// name. ETagOf makes the function for a file system.
func WithETag(etag func(ctx context.Context, name string) (string, error)) Option {
	return option(func(c *config) error {
		if etag == nil {
			return errors.New("webdavlock: WithETag(nil): must not be nil")
		}
		c.etag = etag
		return nil
	})
}

// WithLogger sets where a lost lock is logged, by default slog.Default().
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) error { c.both = append(c.both, pathlock.WithLogger(l)); return nil })
}

// WithOwner names the owner of the locks that the handler takes for itself, as people see it who look
// at the tree. By default they have none. A client names the owner of its own locks.
func WithOwner(name string) Option {
	return option(func(c *config) error {
		c.owner, c.both = []byte(name), append(c.both, pathlock.WithOwner(name))
		return nil
	})
}

// WithObserver sets an observer of the locks, as that of a pathlock.Tree. It does not see which locks are
// in use, because their keys would be tokens.
func WithObserver(o mongolock.Observer) Option {
	return option(func(c *config) error { c.tree = append(c.tree, pathlock.WithObserver(o)); return nil })
}

// New returns the lock system of that name in a storage. It sends nothing.
func New(storage pathlock.Storage, name string, opts ...Option) (*LockSystem, error) {
	var conf config
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, errors.New("webdavlock: a nil Option"))
			continue
		}
		errs = append(errs, o.apply(&conf))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	limits := pathlock.WithLimits(pathlock.Limits{Infinite: true})
	locks, err := pathlock.New(storage, name, append(slices.Concat(conf.both, conf.tree), limits)...)
	if err != nil {
		return nil, fmt.Errorf("webdavlock: %w", err)
	}
	holds, err := pathlock.New(storage, name+" in use", conf.both...)
	if err != nil {
		return nil, fmt.Errorf("webdavlock: %w", errors.Join(err, locks.Close()))
	}
	return &LockSystem{locks: locks, holds: holds, etag: conf.etag, owner: conf.owner, own: make(map[string]*pathlock.Hold)}, nil
}

// Close ends the refreshing in the background, and the locks that the handler took for itself. The
// locks of clients stay.
func (s *LockSystem) Close() error { return errors.Join(s.locks.Close(), s.holds.Close()) }

// Create takes a lock.
func (s *LockSystem) Create(_ time.Time, details webdav.LockDetails) (string, error) {
	token, err := s.create(details)
	return token, locked(err)
}

func (s *LockSystem) create(details webdav.LockDetails) (string, error) {
	ctx, cancel := bounded()
	defer cancel()
	r := pathlock.Request{
		Path: clean(details.Root), Mode: pathlock.Exclusive, Depth: pathlock.Infinity,
		Timeouts: []time.Duration{timeout(details.Duration)}, Owner: []byte(details.OwnerXML),
	}
	if details.ZeroDepth {
		r.Depth = pathlock.Zero
	}
	if details.ZeroDepth && details.Duration < 0 && details.OwnerXML == "" { // the handler's own
		r.Timeouts, r.Owner = []time.Duration{lease}, s.owner
		h, err := s.locks.TryHold(ctx, r)
		if err != nil {
			return "", err
		}
		s.remember(h)
		return h.Lock.Token, nil
	}
	l, err := s.locks.Lock(ctx, r)
	return l.Token, err
}

// locked translates a conflict for the handler, which compares the error.
func locked(err error) error {
	if errors.Is(err, pathlock.ErrConflict) {
		return webdav.ErrLocked
	}
	return err
}

// Refresh restarts a lock's time. It returns webdav.ErrLocked while a request uses the
// lock.
func (s *LockSystem) Refresh(_ time.Time, token string, duration time.Duration) (webdav.LockDetails, error) {
	ctx, cancel := bounded()
	defer cancel()
	done, err := s.hold(ctx, token)
	if err != nil {
		return webdav.LockDetails{}, err
	}
	defer done()
	l, err := s.locks.Refresh(ctx, token, timeout(duration))
	if err != nil {
		return webdav.LockDetails{}, known(err)
	}
	return webdav.LockDetails{
		Root: l.Path, Duration: l.Timeout, OwnerXML: string(l.Owner), ZeroDepth: l.Depth == pathlock.Zero,
	}, nil
}

// Unlock releases a lock. It returns webdav.ErrLocked while a request uses the lock. The
// interface does not tell the name, so any token of the tree will do.
func (s *LockSystem) Unlock(_ time.Time, token string) error {
	ctx, cancel := bounded()
	defer cancel()
	if h := s.forget(token); h != nil {
		_ = h.Detach()
		return known(s.locks.Release(ctx, token)) // which tells whether it was there
	}
	done, err := s.hold(ctx, token)
	if err != nil {
		return err
	}
	defer done()
	return known(s.locks.Release(ctx, token))
}

// Confirm finds for each name a lock that covers it and that a condition names. Until release
// is called these locks are in use: no request can refresh, release or use them, and they do
// not run out.
func (s *LockSystem) Confirm(_ time.Time, name0, name1 string, conditions ...webdav.Condition) (release func(), err error) {
	ctx, cancel := bounded()
	defer cancel()
	met, err := s.tagsMatch(ctx, name0, conditions)
	if err != nil {
		return nil, err
	}
	if !met {
		return nil, webdav.ErrConfirmationFailed // not wrapped: the handler compares it
	}
	var covering []pathlock.Lock
	for _, name := range []string{name0, name1} {
		if name == "" {
			continue
		}
		a, err := s.locks.Affecting(ctx, clean(name), pathlock.Zero)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(conditions, func(c webdav.Condition) bool {
			_, ok := named(a, c)
			return ok
		})
		if i < 0 {
			return nil, webdav.ErrConfirmationFailed
		}
		if l, _ := named(a, conditions[i]); !slices.ContainsFunc(covering, func(o pathlock.Lock) bool { return o.Token == l.Token }) {
			covering = append(covering, l)
		}
	}
	var undo []func()
	release = func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	for _, l := range covering {
		done, err := s.use(ctx, l)
		if err != nil {
			release()
			return nil, err
		}
		undo = append(undo, done)
	}
	return release, nil
}

// named finds the lock that a condition names.
func named(a pathlock.Affecting, c webdav.Condition) (pathlock.Lock, bool) {
	for _, l := range slices.Concat(a.Same, a.Parents) {
		if !c.Not && c.Token == l.Token {
			return l, true
		}
	}
	return pathlock.Lock{}, false
}

// tagsMatch checks the entity tags of conditions, if WithETag says how.
func (s *LockSystem) tagsMatch(ctx context.Context, name string, conditions []webdav.Condition) (bool, error) {
	for _, c := range conditions {
		if c.ETag == "" || s.etag == nil || name == "" {
			continue
		}
		is, err := s.etag(ctx, clean(name))
		if err != nil || (is == c.ETag) == c.Not {
			return false, err
		}
	}
	return true, nil
}

// clean returns a name as the file systems of x/net read it.
func clean(name string) string { return path.Clean("/" + name) }

// timeout brings a duration of the handler into the bounds of package pathlock.
func timeout(d time.Duration) time.Duration {
	if d < 0 {
		return pathlock.Infinite
	}
	return min(max(d, pathlock.MinTimeout), pathlock.MaxTimeout)
}

// known translates an error for the handler.
func known(err error) error {
	if errors.Is(err, pathlock.ErrUnknownToken) {
		return webdav.ErrNoSuchLock
	}
	return err
}

func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callBound)
}
