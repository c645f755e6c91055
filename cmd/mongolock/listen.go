package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/follow"
	"github.com/mongolock/mongolock/store"
)

// These are how often watch looks at all keys, unless --every is given.
const (
	lookOften  = 250 * time.Millisecond // while keys change, or without wake-ups
	lookSeldom = 900 * time.Millisecond // while it hears wake-ups and nothing changes: a key that is held for a second is seen
	lookApart  = 100 * time.Millisecond // at least between a look and one that a wake-up asks for
)

// A lookout says when watch looks again: when a wake-up tells that a key came free, soon after
// that, because a waiter is granted it then, and now and then in any case. Neither a grant nor
// the release of a key without waiters is announced.
type lookout struct {
	prefix string
	every  time.Duration // of --every; 0: by itself
	wakes  *mongo.Collection
	feed   *follow.Follower
	woken  chan struct{} // has one element if a key came free since the last look

	joined bool          // the feed is, or was, wanted
	unseen error         // the collections could not be listed
	net    time.Duration // the time to the next look
	soon   int           // looks that are still to follow a wake-up
	deaf   int           // looks in a row without a feed
	said   string        // the state that was last printed

	why atomic.Value // why the feed was lost: a string
}

func newLookout(ctx context.Context, prefix string, every *time.Duration, wakes *mongo.Collection, feed store.Feed) *lookout {
	l := &lookout{prefix: prefix, wakes: wakes, woken: make(chan struct{}, 1), net: lookOften}
	if every != nil {
		l.every = *every
	}
	l.feed = follow.New(ctx, feed, store.Audience{}, l.heard, func(loss follow.Loss) { l.why.Store(fmt.Sprint(loss.Err)) })
	return l
}

// heard handles a notice. An empty one says that the feed is live, and that other notices may
// have been missed.
func (l *lookout) heard(n store.Notice) {
	if n != (store.Notice{}) && (n.Topic != store.TopicLocks || !strings.HasPrefix(n.Key, l.prefix)) {
		return
	}
	l.wake()
}

// wake has the next look come soon.
func (l *lookout) wake() {
	select {
	case l.woken <- struct{}{}:
	default: // the look that follows shows this one too
	}
}

// listen opens the feed once there is one. Opening would make the collection if it is missing,
// and a command that only looks makes nothing.
func (l *lookout) listen(ctx context.Context) {
	if l.joined {
		return
	}
	names, err := l.wakes.Database().ListCollectionNames(ctx, bson.D{{Key: "name", Value: l.wakes.Name()}})
	if l.unseen, l.joined = err, err == nil && len(names) > 0; l.joined {
		l.feed.Join()
	}
}

// wait waits for the next look, and reports whether ctx goes on.
func (l *lookout) wait(ctx context.Context, changed bool) bool {
	looked := time.Now()
	t := time.NewTimer(l.next(changed))
	defer t.Stop()
	select {
	case <-t.C:
		l.soon = max(0, l.soon-1)
		return true
	case <-ctx.Done():
		return false
	case <-l.woken:
		l.soon = 2
		return backoff.Sleep(ctx, lookApart-time.Since(looked))
	}
}

// next returns how long to wait at most.
func (l *lookout) next(changed bool) time.Duration {
	switch {
	case l.every > 0:
		l.net = l.every
	case changed || !l.feed.Live():
		l.net = lookOften
	default:
		l.net = min(2*l.net, lookSeldom)
	}
	if l.soon > 0 {
		return min(l.net, lookApart)
	}
	return l.net
}

// state says how changes are learned of, and whether that is new. A feed that is being reopened
// does not count as lost.
func (l *lookout) state() (text string, news bool) {
	if l.feed.Live() {
		l.deaf = 0
		often := span(lookOften) + " to " + span(lookSeldom)
		if l.every > 0 {
			often = span(l.every)
		}
		text = "listening: a key that others wait for is seen as it changes hands, the rest at a look, every " + often
	} else {
		l.deaf++
		text = fmt.Sprintf("not listening, %s: looking every %s", l.reason(), span(cmp.Or(l.every, lookOften)))
	}
	if news = text != l.said && l.deaf != 1; news {
		l.said = text
	}
	return text, news
}

func (l *lookout) reason() string {
	why, lost := l.why.Load().(string)
	switch {
	case l.unseen != nil:
		return fmt.Sprintf("as the collections cannot be listed (%s), and opening %s would make it", sentence(l.unseen), l.wakes.Name())
	case !l.joined:
		return fmt.Sprintf("as nobody has waited here yet (there is no collection %s)", l.wakes.Database().Name()+"."+l.wakes.Name())
	case lost:
		return "as wake-ups are not heard (" + why + ")"
	}
	return "as wake-ups are not heard yet"
}
