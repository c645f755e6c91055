package simulation

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/pathlock"
)

// watchFor is how long watchers go on after the last lock has run out: longer than any of
// them waits between two looks.
const watchFor = 40 * time.Second

// A pathWatch is what one Watch yielded.
type pathWatch struct {
	client   int
	from, to time.Duration // from its return to its end; to is 0 while it goes on
	events   []pathlock.Event
	reset    time.Duration // when it yielded the last Reset
}

// watch watches a tree until ctx ends, again after each failure.
func (r *pathRun) watch(ctx context.Context, p *pathProcess, d *rng) {
	ctx = context.WithValue(ctx, actorKey{}, "watch"+itoa(p.id))
	for ctx.Err() == nil && !p.isDead() {
		events, err := p.tree.Watch(ctx)
		if err == nil {
			r.follow(p, events)
		}
		select {
		case <-time.After(d.between(time.Microsecond, time.Second)):
		case <-ctx.Done():
		}
	}
}

func (r *pathRun) follow(p *pathProcess, events func(func(pathlock.Event, error) bool)) {
	r.w.mu.Lock()
	w := &pathWatch{client: p.id, from: r.w.since()}
	r.watches = append(r.watches, w)
	r.w.mu.Unlock()
	for event, err := range events {
		r.w.mu.Lock()
		if err == nil {
			r.w.logf("client %d sees %s %s %s %s", p.id, event.Kind, event.Lock.Path, event.Lock.Mode, event.Lock.Depth)
			w.events = append(w.events, event)
			if event.Kind == pathlock.Reset {
				w.reset = r.w.since()
			}
		}
		r.w.mu.Unlock()
	}
	r.w.mu.Lock()
	w.to = r.w.since()
	r.w.mu.Unlock()
}

// judgeWatches judges what watchers were told, with clocks that agree within the margin.
// (A watcher reads events by time. It is reset when it learns of an election. If the new
// primary's clock is far behind or ahead, it may be told of a lock twice before that.)
//
//   - Numbers and times of events do not go back.
//   - Between two resets nothing is told twice, and nothing of a lock after its end.
//   - A lock that was granted while one watched, and its end, are told, unless the watcher
//     was reset since.
func (r *pathRun) judgeWatches() {
	for _, w := range r.watches {
		added, ended := map[string]bool{}, map[string]bool{}
		var last pathlock.Event
		wrong := func(what string, e pathlock.Event) {
			r.found = append(r.found, history.Violation{Check: "watch", At: w.from, Text: what + ": client " + itoa(w.client) + ", " + string(e.Kind) + " " + e.Lock.Path})
		}
		for _, e := range w.events {
			switch {
			case e.Seq < last.Seq, e.At.Before(last.At) && last.Kind != pathlock.Reset:
				wrong("an event out of order", e)
			}
			last = e
			token := e.Lock.Token
			switch e.Kind {
			case pathlock.Reset:
				clear(added)
				clear(ended)
			case pathlock.Added:
				if added[token] || ended[token] {
					wrong("told twice", e)
				}
				added[token] = true
			default:
				if ended[token] {
					wrong("an end told twice", e)
				}
				ended[token] = true
			}
		}
		if r.dead[w.client] {
			continue // it was told nothing any more
		}
		since := max(w.from, w.reset)
		for _, token := range r.order {
			h := r.holds[token]
			// It was added after the watch began, and told long before that ended.
			if h.sent > since+time.Second && h.from < w.to-watchFor/2 && h.to > h.from && !added[token] {
				wrong("a lock was not told", pathlock.Event{Kind: pathlock.Added, Lock: pathlock.Lock{Path: h.path}})
			}
			if added[token] && h.from > since && h.last < w.to-watchFor && !ended[token] {
				wrong("an end was not told", pathlock.Event{Kind: pathlock.Expired, Lock: pathlock.Lock{Path: h.path}})
			}
		}
	}
}
