package pathlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/internal/mongo/command"
	"github.com/mongolock/mongolock/internal/mongo/server"
)

const (
	// eventsLate is how much later an event may be seen than its time says: writes become
	// visible out of order, and after a failover another clock tells the time.
	eventsLate = 5 * time.Second

	// buriedFor is how long, at least, the record of an ended lock stays for watchers.
	buriedFor = 2 * time.Minute

	soonEnough = 64 // how many locks that ran out a look removes at most
)

// A mongoWatcher is one Watch. It remembers the events of the last few seconds, and no locks.
type mongoWatcher struct {
	*mongoTree
	tree  *Tree
	begun bool
	from  time.Time            // events after this are new, unless they were told
	told  map[string]time.Time // the events since then that were told, by kind and token
	until time.Time            // when its word ends
	knows time.Time            // a process that added a lock after this knew the word before the lock's grant
	epoch bson.ObjectID        // the election by whose clock it reads: after another one it may have missed events
	seq   int64
	last  time.Time // of the last event: times do not go back
}

func (m *mongoTree) watcher(t *Tree) watcher {
	return &mongoWatcher{mongoTree: m, tree: t, told: make(map[string]time.Time)}
}

// look reads the events since the last look. A watcher that has let its word run out may have
// missed some, because they were not kept for it.
func (w *mongoWatcher) look(ctx context.Context) (events []Event, next time.Duration, err error) {
	if err := notStarted(ctx); err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(command.Bare(ctx), callBound)
	defer cancel()
	if err := w.base.Sure(ctx); err != nil {
		return nil, 0, wrap(err)
	}
	now, err := w.clock(ctx, nil)
	if err != nil {
		return nil, 0, wrap(err)
	}
	by := w.base.ClockBasis()
	switch {
	case !w.begun || !w.until.After(now.Latest) || by.Sure && by.Epoch != w.epoch:
		events, err = w.begin(ctx)
	case !w.until.After(now.Latest.Add(wordFor / 2)):
		if w.until, err = w.leaveWord(ctx, fieldWatched, nil); err == nil {
			w.sweep(ctx, now)
		}
	}
	if err != nil {
		return nil, 0, wrap(err)
	}
	next, err = w.expire(ctx)
	if err != nil {
		return nil, 0, wrap(err)
	}
	fresh, err := w.read(ctx)
	return append(events, fresh...), next, wrap(err)
}

// begin leaves the word, and waits until all writing processes know it. A watcher that was
// there before is told of all locks.
func (w *mongoWatcher) begin(ctx context.Context) (events []Event, err error) {
	if w.until, err = w.leaveWord(ctx, fieldWatched, nil); err != nil {
		return nil, err
	}
	if !backoff.Sleep(ctx, wordSettled) {
		return nil, context.Cause(ctx)
	}
	if err := w.sample(ctx, nil); err != nil {
		return nil, err
	}
	now, err := w.clock(ctx, nil)
	if err != nil {
		return nil, err
	}
	behind := w.begun
	w.begun, w.from, w.knows, w.epoch = true, now.Earliest, now.Latest.Add(-wordFresh), w.base.ClockBasis().Epoch
	if !behind {
		return nil, nil
	}
	clear(w.told)
	w.seq++
	all := part{all: true}
	s, err := w.find(ctx, w.base.W1, w.partFilter(all), 0)
	if err != nil {
		return nil, err
	}
	s.records = slices.DeleteFunc(s.records, func(r record) bool { return w.ungranted(&r) })
	doc, err := w.document(ctx, fmt.Sprint("view", all), now, &s)
	if err != nil {
		return nil, err
	}
	events = reset(w.seq, w.at(now.Latest), doc.all(now))
	for _, r := range s.records {
		at := r.granted
		if at.IsZero() { // its process may still write it
			at = r.Since.Add(callBound)
		}
		w.told[Event{Kind: Added, Lock: r.Lock}.key()] = at
	}
	return events, err
}

// expire removes locks that have run out, so that all watchers are told. It returns the time
// until the next one runs out.
func (w *mongoWatcher) expire(ctx context.Context) (next time.Duration, err error) {
	for {
		now, err := w.clock(ctx, nil)
		if err != nil {
			return 0, err
		}
		filter := bson.D{
			{Key: fieldUntil, Value: bson.D{{Key: "$lte", Value: now.Latest.Add(pollLive)}}},
			{Key: fieldVersion, Value: mongoVersion}, {Key: fieldTree, Value: w.name}, {Key: fieldState, Value: stateGranted},
		}
		s := sight{sent: w.base.Clock.Now()}
		var soon []*record
		err = w.each(ctx, w.base.W1, filter, func(raw bson.Raw) error {
			r, err := readRecord(raw)
			soon = append(soon, &r)
			return err
		}, options.Find().SetSort(bson.D{{Key: fieldUntil, Value: 1}}).SetLimit(soonEnough))
		if err != nil {
			return 0, err
		}
		s.seen = w.base.Clock.Now()
		j, err := w.judged(ctx, "expire", now, &s, soon)
		if err != nil {
			return 0, err
		}
		var over []*record
		next = pollLive
		for _, r := range soon {
			if j.over[r.Token] {
				over = append(over, r)
			} else {
				next = min(next, max(tick, j.shown(r).ExpireAt.Sub(now.Earliest)+tick))
			}
		}
		told := false
		for _, r := range over {
			gone, err := w.end(ctx, now, r)
			if err != nil {
				return 0, err
			}
			told = told || gone
		}
		if told {
			w.tree.hub.wrote(ctx, true)
		}
		if len(over) < soonEnough {
			return next, nil
		}
	}
}

// read returns the new events, in order of time. A find is no snapshot: it may pass a record
// before the lock is released, and come to one of a lock that was granted after that. So what
// a find shows is told together with what a second one shows of the time before.
func (w *mongoWatcher) read(ctx context.Context) (fresh []Event, err error) {
	now, err := w.clock(ctx, nil)
	if err != nil {
		return nil, err
	}
	untold, err := w.untold(ctx, now)
	if err != nil {
		return nil, err
	}
	if len(untold) > 0 {
		again, err := w.untold(ctx, now)
		if err != nil {
			return nil, err
		}
		fresh = joined(untold, again)
	}
	for i := range fresh {
		w.told[fresh[i].key()] = fresh[i].At
		w.seq++
		fresh[i].Seq = w.seq
		if fresh[i].Kind == Expired {
			fresh[i].At = fresh[i].Lock.ExpireAt
		}
		fresh[i].At = w.at(fresh[i].At)
	}
	w.forget(now)
	return fresh, nil
}

// joined are the events that were seen first, and those before the last of them that were
// seen afterwards, each once: a find may pass a record twice whose lock is released meanwhile.
// Others are left to the next look, as the second find may have missed what was before them.
func joined(first, again []Event) (all []Event) {
	last := slices.MaxFunc(first, func(a, b Event) int { return a.At.Compare(b.At) })
	seen := make(map[string]bool)
	for _, e := range slices.Concat(first, again) {
		if !seen[e.key()] && !e.At.After(last.At) {
			seen[e.key()] = true
			all = append(all, e)
		}
	}
	inOrder(all)
	return all
}

// inOrder sorts events by time. The server's has milliseconds, and of one of them a lock that
// ended is told before one that was added: the latter may have waited for the former.
func inOrder(events []Event) {
	added := make(map[string]time.Time)
	for _, e := range events {
		if e.Kind == Added {
			added[e.Lock.Token] = e.At
		}
	}
	rank := func(e Event) int {
		switch {
		case e.Kind == Added:
			return 1
		case added[e.Lock.Token].Equal(e.At):
			return 2
		}
		return 0
	}
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(rank(a), rank(b)), strings.Compare(a.Lock.Token, b.Lock.Token))
	})
}

// untold finds the events that were not told yet.
func (w *mongoWatcher) untold(ctx context.Context, now interval) (events []Event, err error) {
	var under bson.A
	for t := w.from.Add(-2 * bucketFor); t.Before(now.Latest.Add(2 * bucketFor)); t = t.Add(bucketFor) {
		under = append(under, bucket(w.name, t))
	}
	after := bson.D{{Key: "$gt", Value: w.from}}
	err = w.each(ctx, w.base.W1, bson.D{
		{Key: fieldUnder, Value: bson.D{{Key: "$in", Value: under}}},
		{Key: "$or", Value: bson.A{bson.D{{Key: fieldGranted, Value: after}}, bson.D{{Key: fieldEnded, Value: after}}}},
	}, func(raw bson.Raw) error {
		r, err := readRecord(raw)
		if err != nil || w.ungranted(&r) {
			return err // it ran out, or was withdrawn, before that
		}
		events = w.add(events, Added, r.granted, r.Lock)
		switch r.state {
		case stateReleased:
			events = w.add(events, Released, r.ended, r.Lock)
		case stateExpired:
			events = w.add(events, Expired, r.ended, r.Lock)
		}
		return nil
	}, options.Find())
	return events, err
}

// ungranted reports whether a lock was not granted yet. A process that adds a lock after the
// word is known writes when it is granted, and until then says nothing of it.
func (w *mongoWatcher) ungranted(r *record) bool {
	return r.granted.IsZero() && r.Since.After(w.knows)
}

// add adds an event that was not told yet.
func (w *mongoWatcher) add(to []Event, kind Kind, at time.Time, l Lock) []Event {
	e := Event{Kind: kind, At: at, Lock: l}
	if _, told := w.told[e.key()]; told || !at.After(w.from) {
		return to
	}
	return append(to, e)
}

// key tells the events of all locks apart.
func (e Event) key() string { return string(e.Kind) + e.Lock.Token }

// at returns t, or the time of the last event if that is later.
func (w *mongoWatcher) at(t time.Time) time.Time {
	if t.After(w.last) {
		w.last = t
	}
	return w.last
}

// forget moves forward the time from which events are read.
func (w *mongoWatcher) forget(now interval) {
	if from := now.Earliest.Add(-eventsLate); from.After(w.from) {
		w.from = from
	}
	for key, at := range w.told {
		if !at.After(w.from) {
			delete(w.told, key)
		}
	}
}

// sweep removes the records of ended locks that no watcher needs any more. It may fail, because
// it is repeated, and the index removes the records that it misses.
func (w *mongoWatcher) sweep(ctx context.Context, now interval) {
	var under bson.A
	for t := now.Earliest.Add(-buriedFor); t.After(now.Earliest.Add(-buriedFor - 2*wordFor)); t = t.Add(-bucketFor) {
		under = append(under, bucket(w.name, t))
	}
	_, _ = w.base.W1.DeleteMany(ctx, bson.D{
		{Key: fieldUnder, Value: bson.D{{Key: "$in", Value: under}}},
		{Key: fieldState, Value: bson.D{{Key: "$in", Value: bson.A{stateReleased, stateExpired}}}},
		{Key: fieldEnded, Value: bson.D{{Key: "$lt", Value: server.Floor(now.Earliest.Add(-buriedFor))}}},
	})
}
