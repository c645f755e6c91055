package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/mongolock/mongolock/pathlock"
)

// An agent is the client of a server of this program, with the locks that it holds. Each
// lock is refreshed in the background for as long as the client is there, but no longer than
// the agent asked for: an agent that forgets a lock loses it.
type agent struct {
	tree *pathlock.Tree
	ttl  time.Duration   // of the locks in the storage
	here context.Context // ends when the client goes, or this server is told to end: no call waits any longer
	gone context.CancelFunc

	mu    sync.Mutex // protects what follows; never held across a call
	holds map[string]*grip
	busy  sync.WaitGroup // calls that take or give back; nothing is added once here has ended
}

func newAgent(ctx context.Context, tree *pathlock.Tree, ttl time.Duration) *agent {
	g := &agent{tree: tree, ttl: ttl, holds: map[string]*grip{}}
	g.here, g.gone = context.WithCancel(ctx)
	return g
}

// A grip is one lock of the agent.
type grip struct {
	*pathlock.Hold
	ttl   time.Duration // the time that the agent asked for
	until time.Time
	timer *time.Timer
}

func (h *grip) granted() granted {
	return granted{Token: h.Lock.Token, Path: h.Lock.Path, Mode: h.Lock.Mode, Depth: h.Lock.Depth, TTL: h.ttl.Seconds()}
}

var errLeft = errors.New("the client has gone")

// take takes a lock for the time ttl.
func (g *agent) take(ctx context.Context, r pathlock.Request, ttl, patience time.Duration) (granted, error) {
	g.mu.Lock()
	if g.here.Err() != nil {
		g.mu.Unlock()
		return granted{}, errLeft
	}
	g.busy.Add(1)
	g.mu.Unlock()
	defer g.busy.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.here, cancel)()
	held, err := g.hold(ctx, r, patience)
	if err != nil {
		return granted{}, g.refused(ctx, r.Path, err)
	}
	h := &grip{Hold: held, ttl: ttl}
	g.mu.Lock()
	defer g.mu.Unlock()
	if ctx.Err() != nil || g.here.Err() != nil { // the client has gone, and will not see the token
		g.busy.Go(func() { _ = held.Release() }) // if this fails, the lock runs out
		return granted{}, errLeft
	}
	g.holds[held.Lock.Token] = h
	h.until = time.Now().Add(ttl)
	h.timer = time.AfterFunc(ttl, func() { g.expire(h) })
	return h.granted(), nil
}

// hold waits for the time patience, not at all if that is 0.
func (g *agent) hold(ctx context.Context, r pathlock.Request, patience time.Duration) (*pathlock.Hold, error) {
	if patience == 0 {
		return g.tree.TryHold(ctx, r)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return g.tree.Hold(ctx, r)
}

// refused says which holder is in the way.
func (g *agent) refused(ctx context.Context, path string, err error) error {
	var conflict *pathlock.ConflictError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !errors.As(err, &conflict):
		return errors.New(reason(err))
	}
	for _, l := range conflict.Same {
		if g.has(l.Token) {
			return fmt.Errorf("%s is held by you already, with the token %s", path, l.Token)
		}
	}
	return fmt.Errorf("%s is held%s", path, inTheWay(conflict))
}

func (g *agent) has(token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.holds[token] != nil
}

// expire gives back a lock whose time is over.
func (g *agent) expire(h *grip) {
	g.mu.Lock()
	over := !time.Now().Before(h.until) && g.holds[h.Lock.Token] == h
	if over {
		delete(g.holds, h.Lock.Token)
		g.busy.Add(1)
	}
	g.mu.Unlock()
	if over {
		defer g.busy.Done()
		_ = h.Release() // if this fails, the lock runs out
	}
}

// errNotHeld answers a token for which this client has no lock.
var errNotHeld = errors.New("token: this client holds no lock with it: it was released, or its time was over; stop changing the path")

// renew restarts the time that the agent asked for; ttl 0 means the same time as before.
func (g *agent) renew(ctx context.Context, token string, ttl time.Duration) (granted, error) {
	g.mu.Lock()
	h := g.holds[token]
	g.mu.Unlock()
	if h == nil {
		return granted{}, errNotHeld
	}
	within, cancel := context.WithTimeout(ctx, g.ttl/3)
	err := h.Renew(within) // it may have been broken since the last time
	cancel()
	if lost := h.Err(); lost != nil {
		_, _ = g.release(token)
		return granted{}, fmt.Errorf("%s: %s; stop changing it", h.Lock.Path, reason(lost))
	}
	if err != nil {
		return granted{}, fmt.Errorf("%s: %s; ask again", h.Lock.Path, reason(err))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holds[token] != h {
		return granted{}, errNotHeld
	}
	if ttl > 0 {
		h.ttl = ttl
	}
	h.until = time.Now().Add(h.ttl)
	h.timer.Reset(h.ttl)
	return h.granted(), nil
}

// release gives a lock back.
func (g *agent) release(token string) (path string, err error) {
	g.mu.Lock()
	h := g.holds[token]
	delete(g.holds, token)
	g.mu.Unlock()
	if h == nil {
		return "", errNotHeld
	}
	h.timer.Stop()
	if err := h.Release(); err != nil {
		return "", fmt.Errorf("%s is not given back and stays taken for %v at most: %s", h.Lock.Path, g.ttl, reason(err))
	}
	return h.Lock.Path, nil
}

// list returns the locks of a tree and their holders.
func (g *agent) list(ctx context.Context, path string) ([]lockSeen, error) {
	if path != "" {
		if _, err := pathlock.Clean(path); err != nil {
			return nil, fmt.Errorf("path: %s", reason(err))
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.here, cancel)()
	locks, err := g.around(ctx, path)
	if err != nil {
		return nil, errors.New(reason(err))
	}
	all := []lockSeen{}
	for _, l := range locks {
		all = append(all, seen(l, g.has(l.Token)))
	}
	return all, nil
}

// around returns the locks above, on and below a path, or all locks if the path is empty.
func (g *agent) around(ctx context.Context, path string) ([]pathlock.Lock, error) {
	if path == "" {
		return g.tree.Locks(ctx)
	}
	found, err := g.tree.Affecting(ctx, path, pathlock.Infinity)
	return slices.Concat(found.Parents, found.Same, found.Children), err
}

// inTheWay describes the first of the locks that are in the way.
func inTheWay(e *pathlock.ConflictError) string {
	all := slices.Concat(e.Parents, e.Same, e.Children)
	if len(all) == 0 && len(e.Waiting) > 0 {
		return ": an exclusive lock of " + e.Waiting[0].Path + " is waited for"
	}
	if len(all) == 0 {
		return ""
	}
	l := all[0]
	text := fmt.Sprintf(": %s, %s, depth %s", l.Path, l.Mode, l.Depth)
	if len(l.Owner) > 0 {
		text += ", by " + strconv.Quote(string(l.Owner))
	}
	if more := e.Len() + e.More - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// leave gives everything back, because the client has gone.
func (g *agent) leave() {
	g.mu.Lock()
	g.gone()
	holds := g.holds
	g.holds = map[string]*grip{}
	for _, h := range holds {
		h.timer.Stop()
		g.busy.Go(func() { _ = h.Release() }) // if this fails, the lock runs out
	}
	g.mu.Unlock()
	g.busy.Wait()
}
