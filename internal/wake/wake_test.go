package wake

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/follow"
	"github.com/mongolock/mongolock/internal/monotonic"
	"github.com/mongolock/mongolock/internal/tasks"
	"github.com/mongolock/mongolock/store"
)

// A world is the waiters, the store and the feed, which the test plays.
type world struct {
	*Watch
	mu     sync.Mutex
	keys   []string
	often  bool
	read   []int // keys in each read
	log    []string
	sent   []store.Notice
	refuse error          // what the feed says to a notice
	broken error          // what a read says
	of     store.Audience // for whom the feed is read
	gone   bool           // the feed says that there is nothing to hear
	asked  int            // how often it was asked whether there is a waiter
	calls  int            // of Notify

	end     func()
	notices chan store.Notice // what the feed tells, the empty notice first; closed: it breaks
}

func inBubble(t *testing.T, mute bool, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{notices: make(chan store.Notice)}
		ctx, stop := context.WithCancel(t.Context())
		clock := monotonic.New()
		group := tasks.New(&clock)
		w.Watch = New(Host{
			Clock: &clock, Tasks: group, Feed: feed{w}, Mute: mute, Look: w.look, Call: time.Second, Batch: 10, Still: 250 * time.Millisecond,
			Address: "here", Stop: ctx.Done(), Waiters: waiters{w}, Logger: slog.New(slog.DiscardHandler),
		})
		w.end = func() { stop(); w.Close() }
		test(t, w)
		w.end()
		group.Wait()
	})
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// said returns what the waiters were told since the last call, and how many reads there were.
func (w *world) said() (log []string, reads int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	log, reads = w.log, len(w.read)
	w.log, w.read = nil, nil
	return log, reads
}

func (w *world) look(_ context.Context, keys []string) ([]store.Status, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read = append(w.read, len(keys))
	return make([]store.Status, len(keys)), w.broken
}

func (w *world) waiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	return len(w.keys) > 0
}

type waiters struct{ *world }

func (w waiters) Waiting() bool { return w.world.waiting() }

func (w waiters) Keys(bool) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys
}

func (w waiters) Read([]store.Status) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.often
}

func (w waiters) Ask(keys []string)                 { w.say("ask %v", keys) }
func (w waiters) Offered(key string, p store.Place) { w.say("offered %s %s", key, p) }
func (w waiters) Next(key string, p store.Place)    { w.say("next %s %s", key, p) }
func (w waiters) Wanted(key string)                 { w.say("wanted %s", key) }

type feed struct{ *world }

func (f feed) Notify(_ context.Context, notices ...store.Notice) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.sent = append(f.sent, notices...)
	return f.refuse
}

func (f feed) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) {
		f.mu.Lock()
		f.world.of = of
		gone := f.gone
		f.mu.Unlock()
		if gone {
			yield(store.Notice{}, errors.ErrUnsupported)
			return
		}
		for {
			select {
			case n, ok := <-f.notices:
				if !ok {
					yield(n, errors.New("the feed broke"))
					return
				}
				if !yield(n, nil) {
					return
				}
			case <-ctx.Done():
				yield(store.Notice{}, ctx.Err())
				return
			}
		}
	}
}

func (w *world) wait(keys ...string) {
	w.mu.Lock()
	w.keys = keys
	w.mu.Unlock()
	w.Join()
	w.Refused(true)
}

func TestKeysArePolledWithGrowingPausesUntilTheFeedIsLive(t *testing.T) {
	inBubble(t, false, func(t *testing.T, w *world) {
		w.wait("a", "b")
		time.Sleep(10 * time.Second)
		log, reads := w.said()
		assert.Empty(t, log)
		assert.InDelta(t, 13, reads, 2, "50 ms, then more, up to a second")
		w.notices <- store.Notice{}
		log, reads = w.said()
		assert.Empty(t, log)
		assert.Equal(t, 1, reads)
		time.Sleep(w.host.Still)
		w.said()
		w.Refused(true)
		asked := w.asked
		time.Sleep(time.Minute)
		_, reads = w.said()
		assert.Zero(t, reads, "a live feed tells")
		assert.Equal(t, asked, w.asked)
		w.Leave()
	})
}

func TestAKeyThatChangesHandsIsPolledOften(t *testing.T) {
	inBubble(t, true, func(t *testing.T, w *world) {
		w.often = true
		w.wait("a")
		time.Sleep(10 * time.Second)
		_, reads := w.said()
		assert.InDelta(t, 10*time.Second/PollLeast, reads, 20)
		w.wait()
		time.Sleep(time.Second)
		w.said()
		asked := w.asked
		time.Sleep(time.Minute)
		_, reads = w.said()
		assert.Zero(t, reads, "there is no waiter")
		assert.Equal(t, asked, w.asked, "the timer is not set")
	})
}

func TestWhoeverComesIsPolledForSoonAndPutsNoPollOff(t *testing.T) {
	inBubble(t, true, func(t *testing.T, w *world) {
		w.wait("a")
		time.Sleep(10 * time.Second)
		w.said()
		time.Sleep(500 * time.Millisecond) // of a pause of a second
		w.wait("a", "b")
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			w.Refused(false)
		}
		time.Sleep(time.Second)
		_, reads := w.said()
		assert.GreaterOrEqual(t, reads, 4)
		assert.LessOrEqual(t, reads, 7)
	})
}

func TestAPollIsNotSentAtOnce(t *testing.T) {
	inBubble(t, true, func(t *testing.T, w *world) {
		w.keys = []string{"a"}
		w.Refused(false)
		time.Sleep(PollLeast / 2)
		_, reads := w.said()
		assert.Zero(t, reads)
	})
}

func TestManyKeysAreReadInFewReads(t *testing.T) {
	inBubble(t, true, func(t *testing.T, w *world) {
		keys := make([]string, 25)
		w.wait(keys...)
		time.Sleep(PollLeast * 13 / 10)
		synctest.Wait()
		assert.Equal(t, []int{10, 10, 5}, w.read)
	})
}

func TestWakeUpsReachTheWaiters(t *testing.T) {
	inBubble(t, false, func(t *testing.T, w *world) {
		w.wait("a")
		w.notices <- store.Notice{}
		w.said()
		w.notices <- store.Notice{Topic: store.TopicLocks, Key: "a", Kind: store.KindOffered, Place: "p"}
		w.notices <- store.Notice{Topic: store.TopicLocks, Key: "a", Kind: store.KindNext, Place: "q"}
		w.notices <- store.Notice{Topic: store.TopicLocks, Key: "b", Kind: store.KindWanted}
		w.notices <- store.Notice{Topic: store.TopicLocks, Key: "b", Kind: store.KindMoved}
		w.notices <- store.Notice{Topic: "another", Key: "c", Kind: store.KindOffered}
		w.notices <- store.Notice{Topic: store.TopicLocks, Key: "d", Kind: "unheard of"}
		log, reads := w.said()
		assert.Equal(t, []string{"offered a p", "next a q", "wanted b", "ask [b]"}, log)
		assert.Zero(t, reads)
		assert.Equal(t, store.Audience{Address: "here"}, w.of, "its own notices only")
		w.Leave()
	})
}

func TestABrokenFeedIsPolledFor(t *testing.T) {
	inBubble(t, false, func(t *testing.T, w *world) {
		w.wait("a")
		w.notices <- store.Notice{}
		time.Sleep(time.Minute)
		w.said()
		close(w.notices)
		w.said()
		time.Sleep(PollLeast * 13 / 10)
		_, reads := w.said()
		assert.Equal(t, 1, reads)
		w.Leave()
	})
}

// A holder that was seen may have announced its release before the feed was open.
func TestAWaiterReadsOnceMoreAMomentAfterTheOpening(t *testing.T) {
	inBubble(t, false, func(t *testing.T, w *world) {
		w.wait("a")
		w.notices <- store.Notice{}
		_, reads := w.said()
		assert.Equal(t, 1, reads)
		time.Sleep(w.host.Still)
		_, reads = w.said()
		assert.Equal(t, 1, reads)
		w.Leave()
	})
}

func TestAFeedThatIsReopenedAsItIsOldCostsOneReadOnly(t *testing.T) {
	inBubble(t, false, func(t *testing.T, w *world) {
		w.wait("a")
		w.notices <- store.Notice{}
		time.Sleep(follow.Reopen * 3 / 2)
		w.said()
		w.notices <- store.Notice{}
		_, reads := w.said()
		assert.Zero(t, reads)
		time.Sleep(w.host.Still)
		_, reads = w.said()
		assert.Equal(t, 1, reads)
		broken := w.notices
		w.notices = make(chan store.Notice)
		close(broken)
		time.Sleep(time.Minute)
		w.said()
		w.notices <- store.Notice{}
		_, reads = w.said()
		assert.Equal(t, 1, reads, "this time it broke")
		w.Leave()
	})
}

func TestKeysThatCannotBeReadAreAskedForAfterTheOpening(t *testing.T) {
	inBubble(t, false, func(t *testing.T, w *world) {
		w.broken = errors.New("no answer")
		w.wait("a")
		w.notices <- store.Notice{}
		log, _ := w.said()
		assert.Equal(t, []string{"ask [a]"}, log)
		w.Leave()
	})
}

func TestWaitersOfADisconnectedStoreAskAndAreToldSo(t *testing.T) {
	inBubble(t, true, func(t *testing.T, w *world) {
		w.broken = store.ErrDisconnected
		w.wait("a")
		time.Sleep(PollLeast * 13 / 10)
		log, _ := w.said()
		assert.Equal(t, []string{"ask [a]"}, log)
	})
}

func offer(key string) store.Notice {
	return store.Notice{Topic: store.TopicLocks, Key: key, Kind: store.KindOffered, To: "there", Place: "p"}
}

func TestNoticesAreSentWithoutListeningToo(t *testing.T) {
	inBubble(t, true, func(t *testing.T, w *world) {
		assert.Empty(t, w.Address(), "nobody can tell it anything")
		w.Announce(offer("a"), offer("b"))
		w.Announce()
		assert.True(t, w.TryAnnounce(offer("c")))
		synctest.Wait()
		assert.Equal(t, 2, w.calls)
		assert.ElementsMatch(t, []store.Notice{offer("a"), offer("b"), offer("c")}, w.sent)
	})
}

func TestAWatchThatListensHasAnAddressUntilItsFeedIsGoneForGood(t *testing.T) {
	inBubble(t, false, func(t *testing.T, w *world) {
		assert.Equal(t, "here", w.Address())
		w.gone = true
		w.wait("a")
		w.said()
		assert.Empty(t, w.Address())
		w.Leave()
	})
}

func TestAfterARefusalNothingIsAnnouncedForAMinute(t *testing.T) {
	inBubble(t, true, func(t *testing.T, w *world) {
		w.refuse = errors.ErrUnsupported
		w.Announce(offer("a"))
		synctest.Wait()
		w.Announce(offer("b"))
		assert.False(t, w.Announces())
		assert.False(t, w.TryAnnounce(offer("b")))
		synctest.Wait()
		assert.Len(t, w.sent, 1)
		time.Sleep(announceAgain)
		w.Announce(offer("c"))
		synctest.Wait()
		assert.Len(t, w.sent, 2)
	})
}

func TestOnlyAHolderThatYieldsIsToldOfWaiters(t *testing.T) {
	now := time.Now()
	s := store.Status{Key: "k", Now: now, Holders: []store.Holder{{ID: "x", ExpireAt: now.Add(time.Minute)}}}
	assert.Empty(t, Wanted(&s))
	s.Holders[0].Yields = "there"
	assert.Equal(t, []store.Notice{{Topic: store.TopicLocks, Key: "k", Kind: store.KindWanted, To: "there"}}, Wanted(&s))
}

func TestCloseEndsThePolls(t *testing.T) {
	inBubble(t, true, func(t *testing.T, w *world) {
		w.wait("a")
		w.end()
		w.Refused(true)
		time.Sleep(time.Minute)
		_, reads := w.said()
		assert.Zero(t, reads)
	})
}

func TestCloseEndsTheFeed(t *testing.T) {
	inBubble(t, false, func(t *testing.T, w *world) {
		w.wait("a")
		w.notices <- store.Notice{}
		w.said()
	})
}
