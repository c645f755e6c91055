package webdavlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/webdav"

	"github.com/mongolock/mongolock/pathlock"
)

// hold marks a lock as in use, for all processes, until done is called: no other request can
// use, refresh or release it.
func (s *LockSystem) hold(ctx context.Context, token string) (done func(), err error) {
	h, err := s.holds.Lock(ctx, pathlock.Request{
		Path: "/" + token, Mode: pathlock.Exclusive, Depth: pathlock.Zero, Timeouts: []time.Duration{lease},
	})
	switch {
	case errors.Is(err, pathlock.ErrConflict):
		return nil, webdav.ErrLocked
	case errors.Is(err, pathlock.ErrPath):
		return nil, webdav.ErrNoSuchLock // none of our tokens looks like this
	case err != nil:
		return nil, err
	}
	stop := s.keep(s.holds, h)
	return func() {
		stop()
		ctx, cancel := bounded()
		defer cancel()
		_ = s.holds.Release(ctx, h.Path, h.Token) // if this fails it runs out
	}, nil
}

// use holds a lock for a request that writes, and keeps it from running out.
func (s *LockSystem) use(ctx context.Context, l pathlock.Lock) (done func(), err error) {
	let, err := s.hold(ctx, l.Token)
	if err != nil {
		if errors.Is(err, webdav.ErrLocked) {
			err = webdav.ErrConfirmationFailed
		}
		return nil, err
	}
	// No request can end it any more. But it may have ended before it was held, and it may be
	// about to run out.
	if l.Left != pathlock.Infinite && l.Left < time.Second {
		l, err = s.locks.Refresh(ctx, l.Token)
	} else {
		err = s.there(ctx, l)
	}
	if err != nil {
		let()
		if errors.Is(err, pathlock.ErrUnknownToken) {
			err = webdav.ErrConfirmationFailed
		}
		return nil, err
	}
	stop := func() {}
	if l.Left != pathlock.Infinite {
		stop = s.keep(s.locks, l)
	}
	return func() { stop(); let() }, nil
}

// there returns ErrUnknownToken if the lock no longer exists.
func (s *LockSystem) there(ctx context.Context, l pathlock.Lock) error {
	a, err := s.locks.Affected(ctx, l.Path)
	if err == nil && !slices.ContainsFunc(a.Same, func(o pathlock.Lock) bool { return o.Token == l.Token }) {
		err = pathlock.ErrUnknownToken
	}
	return err
}

// keep refreshes a lock, with its own timeout, until stop is called. A lock with a long timeout
// is refreshed only when it is about to run out: other refreshes are the client's decision.
func (s *LockSystem) keep(tree *pathlock.Tree, l pathlock.Lock) (stop func()) {
	ended := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return func() {}
	}
	s.kept.Go(func() {
		for left := l.Left; ; {
			timer := time.NewTimer(left - min(left*2/3, lease/2))
			select {
			case <-timer.C:
			case <-ended:
				timer.Stop()
				return
			}
			ctx, cancel := bounded()
			sent := time.Now()
			fresh, err := tree.Refresh(ctx, l.Token)
			cancel()
			switch {
			case errors.Is(err, pathlock.ErrUnknownToken), errors.Is(err, pathlock.ErrClosed):
				return
			case err != nil:
				left = max(time.Second, left/2) // try again soon
			default:
				left = max(time.Millisecond, fresh.Left-time.Since(sent))
			}
		}
	})
	return sync.OnceFunc(func() { close(ended) })
}

func (s *LockSystem) remember(token string, stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[token] = stop
}

func (s *LockSystem) forget(token string) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stop = s.own[token]
	delete(s.own, token)
	return stop
}
