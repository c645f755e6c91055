package storetest

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/mongolock/mongolock/store"
)

var feedClaims = []claim{
	{"AWatchBeginsWithAnEmptyNotice", aWatchBeginsWithAnEmptyNotice},
	{"EveryWatcherHearsANotice", everyWatcherHearsANotice},
	{"AWatcherHearsWhatIsForIt", aWatcherHearsWhatIsForIt},
	{"AWatchEndsWithItsContext", aWatchEndsWithItsContext},
	{"AWatchEndsWhenItsCallerStops", aWatchEndsWhenItsCallerStops},
	{"ASlowWatcherDelaysNobody", aSlowWatcherDelaysNobody},
	{"EveryWatcherHearsABulkOfNotices", everyWatcherHearsABulkOfNotices},
}

// patience is how long a notice may take: a server that a busy machine starves, as tests do, is
// slow but right. In virtual time it takes none.
const patience = 20 * time.Second

// A watcher is a running watch.
type watcher struct {
	notices chan store.Notice
	errs    chan error // errors that the watch yielded
	ended   chan struct{}
	stop    context.CancelFunc
}

// watch starts a watch for an audience, whose loop calls body with each notice, until it is stopped.
func (e *env) watch(of store.Audience, body func(store.Notice)) *watcher {
	ctx, stop := context.WithCancel(context.Background())
	w := &watcher{
		notices: make(chan store.Notice, 10_000), errs: make(chan error, 10),
		ended: make(chan struct{}), stop: stop,
	}
	feed := store.FeedOf(e.store)
	go func() {
		defer close(w.ended)
		for n, err := range feed.Watch(ctx, of) {
			if err != nil {
				w.errs <- err
				return
			}
			body(n)
			w.notices <- n
		}
	}()
	e.Cleanup(func() {
		stop()
		select {
		case <-w.ended:
		case <-time.After(2 * patience): // another claim reports a watch that goes on
		}
	})
	return w
}

func (e *env) next(w *watcher) store.Notice {
	e.Helper()
	select {
	case n := <-w.notices:
		return n
	case err := <-w.errs:
		e.Fatalf("the watch failed: %v", err)
	case <-time.After(patience):
		e.Fatalf("no notice within %v", patience)
	}
	return store.Notice{}
}

// live waits for the empty notice with which a watch begins.
func (e *env) live(w *watcher) {
	e.Helper()
	if n := e.next(w); n != (store.Notice{}) {
		e.Errorf("the watch began with %+v, want an empty notice", n)
	}
}

func (e *env) notify(n store.Notice) {
	e.Helper()
	if err := store.FeedOf(e.store).Notify(e.ctx(), n); err != nil {
		e.Fatalf("notify: %v", err)
	}
}

// hears waits for a notice, and skips those that others send on a shared feed.
func (e *env) hears(w *watcher, want store.Notice) {
	e.Helper()
	for give := time.Now().Add(patience); time.Now().Before(give); {
		if e.next(w) == want {
			return
		}
	}
	e.Errorf("a watcher did not hear %+v", want)
}

func aWatchBeginsWithAnEmptyNotice(e *env) {
	for range 2 { // the second watch, too
		w := e.watch(store.Audience{}, func(store.Notice) {})
		e.live(w)
		w.stop()
		<-w.ended
	}
}

func everyWatcherHearsANotice(e *env) {
	var watchers []*watcher
	for range 3 {
		w := e.watch(store.Audience{}, func(store.Notice) {})
		e.live(w)
		watchers = append(watchers, w)
	}
	for _, n := range []store.Notice{
		{Topic: store.TopicLocks, Key: e.key("offered"), Kind: store.KindOffered, To: "there", Place: store.NewPlace(store.Permits, 3, 1, "there")},
		{Topic: "a topic of tomorrow", Key: e.key("$x.a\x00b/\U0001F512"), Kind: "a kind of tomorrow"},
	} {
		e.notify(n)
		for _, w := range watchers {
			e.hears(w, n)
		}
	}
}

// aWatcherHearsWhatIsForIt: what is for others, it may hear too.
func aWatcherHearsWhatIsForIt(e *env) {
	mine, topic := rand.Text(), rand.Text()
	w := e.watch(store.Audience{Address: mine, Topics: []string{"another", topic}}, func(store.Notice) {})
	e.live(w)
	for _, n := range []store.Notice{
		{Topic: store.TopicLocks, Key: e.key("offered"), Kind: store.KindOffered, To: mine, Place: store.NewPlace(store.Exclusive, 1, 1, mine)},
		{Topic: topic, Key: e.key("changed"), Kind: "changed"},
		{Topic: topic, Key: e.key("addressed"), Kind: "changed", To: mine},
	} {
		e.notify(store.Notice{Topic: store.TopicLocks, Key: n.Key, Kind: store.KindOffered, To: rand.Text()})
		e.notify(n)
		e.hears(w, n)
	}
}

func aWatchEndsWithItsContext(e *env) {
	w := e.watch(store.Audience{}, func(store.Notice) {})
	e.live(w)
	w.stop()
	select {
	case <-w.ended:
	case <-time.After(patience):
		e.Fatalf("the watch still runs %v after its context ended", patience)
	}
}

func aWatchEndsWhenItsCallerStops(e *env) {
	seen := 0
	for range store.FeedOf(e.store).Watch(e.ctx(), store.Audience{}) {
		seen++
		break
	}
	if seen != 1 {
		e.Errorf("%d notices before the caller stopped, want 1", seen)
	}
	w := e.watch(store.Audience{}, func(store.Notice) {})
	e.live(w)
	n := store.Notice{Topic: store.TopicLocks, Key: e.key("offered"), Kind: store.KindOffered}
	e.notify(n)
	e.hears(w, n)
}

func aSlowWatcherDelaysNobody(e *env) {
	blocked := make(chan struct{})
	slow := e.watch(store.Audience{}, func(n store.Notice) {
		if n != (store.Notice{}) {
			<-blocked
		}
	})
	quick := e.watch(store.Audience{}, func(store.Notice) {})
	free := sync.OnceFunc(func() { close(blocked) })
	e.Cleanup(free)
	e.live(slow)
	e.live(quick)

	last := store.Notice{Topic: store.TopicLocks, Key: e.key("last"), Kind: store.KindOffered}
	for range e.rounds(1000, 300) {
		e.notify(store.Notice{Topic: store.TopicLocks, Key: e.key("offered"), Kind: store.KindOffered})
	}
	e.notify(last)
	e.orEverything(quick, last)
	free()
	e.orEverything(slow, last)
}

// orEverything waits for a notice, or for the empty notice that replaces all that a
// watcher missed.
func (e *env) orEverything(w *watcher, want store.Notice) {
	e.Helper()
	for {
		if n := e.next(w); n == want || n == (store.Notice{}) {
			return
		}
	}
}

func everyWatcherHearsABulkOfNotices(e *env) {
	var watchers []*watcher
	for range 2 {
		w := e.watch(store.Audience{}, func(store.Notice) {})
		e.live(w)
		watchers = append(watchers, w)
	}
	for _, n := range []int{0, 1, 20} {
		var all []store.Notice
		for range n {
			all = append(all, store.Notice{Topic: store.TopicLocks, Key: e.key("offered"), Kind: store.KindOffered})
		}
		if err := store.FeedOf(e.store).Notify(e.ctx(), all...); err != nil {
			e.Fatalf("%d notices: %v", n, err)
		}
		for _, w := range watchers {
			for _, n := range all {
				e.hears(w, n)
			}
		}
	}
}
