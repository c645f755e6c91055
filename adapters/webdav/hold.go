package webdavlock

import (
	"context"
	"errors"
	"time"

	"golang.org/x/net/webdav"

	"github.com/mongolock/mongolock/pathlock"
)

// hold marks a lock as in use, for all processes, until done is called: no other request can
// use, refresh or release it.
func (s *LockSystem) hold(ctx context.Context, token string) (done func(), err error) {
	h, err := s.holds.TryHold(ctx, pathlock.Request{Path: "/" + token, Depth: pathlock.Zero, Timeouts: []time.Duration{lease}})
	switch {
	case errors.Is(err, pathlock.ErrConflict):
		return nil, webdav.ErrLocked
	case errors.Is(err, pathlock.ErrPath):
		return nil, webdav.ErrNoSuchLock // none of our tokens looks like this
	case err != nil:
		return nil, err
	}
	return func() { _ = h.Release() }, nil // if this fails it runs out
}

// use holds a lock for a request that writes, and keeps it from running out. No request can end it
// any more; Resume tells if it has ended before.
func (s *LockSystem) use(ctx context.Context, l pathlock.Lock) (done func(), err error) {
	let, err := s.hold(ctx, l.Token)
	if err == nil {
		var h *pathlock.Hold
		if h, err = s.locks.Resume(ctx, l); err == nil {
			return func() { _ = h.Detach(); let() }, nil
		}
		let()
	}
	if errors.Is(err, webdav.ErrLocked) || errors.Is(err, pathlock.ErrUnknownToken) {
		err = webdav.ErrConfirmationFailed
	}
	return nil, err
}

// remember keeps the hold of a lock that the handler took for itself.
func (s *LockSystem) remember(h *pathlock.Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[h.Lock.Token] = h
}

func (s *LockSystem) forget(token string) *pathlock.Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.own[token]
	delete(s.own, token)
	return h
}
