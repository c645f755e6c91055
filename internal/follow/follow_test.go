package follow_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/follow"
	"github.com/mongolock/mongolock/store"
)

var errNet = errors.New("connection reset")

var audience = store.Audience{Address: "here", Topics: []string{"jobs"}}

var work = store.Notice{Topic: "jobs", Key: "k", Kind: "ready"}

// A feed is one whose Watch does what the test says.
type feed struct {
	watch func(ctx context.Context, yield func(store.Notice, error) bool)

	mu     sync.Mutex
	opened []time.Duration // since the first
	first  time.Time
	open   int
}

func (f *feed) Notify(context.Context, ...store.Notice) error { panic("a Follower announces nothing") }

func (f *feed) Watch(ctx context.Context, of store.Audience) iter.Seq2[store.Notice, error] {
	if !reflect.DeepEqual(of, audience) {
		panic("watched for another audience")
	}
	return func(yield func(store.Notice, error) bool) {
		f.count(1)
		defer f.count(-1)
		f.watch(ctx, yield)
	}
}

func (f *feed) count(by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open += by; f.open > 1 {
		panic("two readers at a time")
	}
	if by < 0 {
		return
	}
	if f.first.IsZero() {
		f.first = time.Now()
	}
	f.opened = append(f.opened, time.Since(f.first))
}

func (f *feed) times() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.opened)
}

func (f *feed) attempts() int { return len(f.times()) }

func (f *feed) isOpen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open > 0
}

// steady opens and stays open until its context ends.
func steady(ctx context.Context, yield func(store.Notice, error) bool) {
	if yield(store.Notice{}, nil) {
		<-ctx.Done()
		yield(store.Notice{}, ctx.Err())
	}
}

// breaking opens, and breaks after d.
func breaking(d time.Duration) func(context.Context, func(store.Notice, error) bool) {
	return func(ctx context.Context, yield func(store.Notice, error) bool) {
		if !yield(store.Notice{}, nil) {
			return
		}
		select {
		case <-time.After(d):
			yield(store.Notice{}, errNet)
		case <-ctx.Done():
		}
	}
}

// A log is what a Follower told.
type log struct {
	mu         sync.Mutex
	allNotices []store.Notice
	allLosses  []follow.Loss
}

func (l *log) heard(n store.Notice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allNotices = append(l.allNotices, n)
}

func (l *log) lost(loss follow.Loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allLosses = append(l.allLosses, loss)
}

func (l *log) notices() []store.Notice {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.allNotices)
}

func (l *log) losses() []follow.Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.allLosses)
}

func (l *log) news() (n int) {
	for _, loss := range l.losses() {
		if loss.News {
			n++
		}
	}
	return n
}

func newFollower(t *testing.T, f *feed) (*follow.Follower, *log) {
	l := &log{}
	fo := follow.New(t.Context(), f, audience, l.heard, l.lost)
	t.Cleanup(fo.Close)
	return fo, l
}

// pass lets time go by, until all that it woke has settled.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestTheFeedIsOpenWhileItIsNeededAndForHalfAMinuteMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{watch: steady}
		fo, _ := newFollower(t, f)
		synctest.Wait()
		assert.Zero(t, f.attempts(), "opened before anybody joined")
		fo.Join()
		fo.Join()
		synctest.Wait()
		assert.True(t, fo.Live())
		pass(time.Minute)
		fo.Leave()
		pass(time.Minute)
		assert.True(t, f.isOpen(), "closed while one still waits")
		fo.Leave()
		pass(follow.Linger - 1)
		assert.True(t, f.isOpen(), "closed too soon")
		fo.Join() // and what is left of the half minute is forgotten
		pass(time.Minute)
		fo.Leave()
		pass(follow.Linger - 1)
		assert.True(t, f.isOpen() && fo.Live(), "closed too soon, after it was needed again")
		pass(1)
		assert.False(t, f.isOpen() || fo.Live(), "open though nobody needs it")
		assert.Equal(t, 1, f.attempts())
		fo.Join()
		synctest.Wait()
		assert.True(t, fo.Live(), "not opened again")
	})
}

func TestWithoutLingerTheFeedClosesWithTheLastWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{watch: steady}
		fo, l := newFollower(t, f)
		fo.Linger = 0
		for i := range 3 {
			fo.Join()
			synctest.Wait()
			assert.True(t, fo.Live())
			fo.Leave()
			assert.False(t, fo.Live(), "a waiter that joins now would rely on a feed that is being closed")
			synctest.Wait()
			assert.False(t, f.isOpen())
			assert.Equal(t, i+1, f.attempts())
		}
		assert.Empty(t, l.losses(), "nobody was there to lose it")
	})
}

// A waiter may join while the reader is on its way out.
func TestAWaiterThatJoinsAsTheFeedClosesHasItOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{watch: func(ctx context.Context, yield func(store.Notice, error) bool) {
			yield(store.Notice{}, nil)
			<-ctx.Done()
			time.Sleep(time.Second) // closing takes its time,
			yield(store.Notice{}, nil)
			time.Sleep(time.Second) // and it says once more that it is live
		}}
		fo, _ := newFollower(t, f)
		fo.Linger = 0
		fo.Join()
		synctest.Wait()
		fo.Leave()
		pass(time.Millisecond)
		fo.Join()
		assert.False(t, fo.Live())
		pass(time.Second)
		assert.False(t, fo.Live(), "by a notice of the feed that is being closed")
		pass(time.Second)
		assert.True(t, fo.Live())
		assert.Equal(t, 2, f.attempts())
	})
}

func TestNoticesAreDeliveredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{watch: func(ctx context.Context, yield func(store.Notice, error) bool) {
			_ = yield(store.Notice{}, nil) && yield(work, nil) && yield(store.Notice{}, nil) && yield(work, nil)
			<-ctx.Done()
		}}
		fo, l := newFollower(t, f)
		fo.Join()
		synctest.Wait()
		assert.Equal(t, []store.Notice{{}, work, {}, work}, l.notices())
	})
}

// The feed is live only from its empty notice on: what was announced before that may
// have gone unheard, and is then looked for.
func TestAFeedIsNotLiveBeforeItSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{watch: func(ctx context.Context, yield func(store.Notice, error) bool) {
			time.Sleep(time.Second)
			steady(ctx, yield)
		}}
		fo, l := newFollower(t, f)
		fo.Join()
		pass(time.Second - 1)
		assert.False(t, fo.Live())
		assert.Empty(t, l.notices())
		pass(1)
		assert.True(t, fo.Live())
		assert.Equal(t, []store.Notice{{}}, l.notices())
	})
}

func TestAFeedThatBreaksIsOpenedAgainWithGrowingPauses(t *testing.T) {
	for name, watch := range map[string]func(context.Context, func(store.Notice, error) bool){
		"fails at once": func(_ context.Context, yield func(store.Notice, error) bool) { yield(store.Notice{}, errNet) },
		"ends at once":  func(context.Context, func(store.Notice, error) bool) {},
		"flaps":         breaking(0),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &feed{watch: watch}
				fo, l := newFollower(t, f)
				fo.Join()
				pass(10 * time.Minute)
				opened, want := f.times(), 100*time.Millisecond
				for i, at := range opened[1:] {
					assert.InDelta(t, want, at-opened[i], float64(want)/5, "pause %d", i)
					want = min(2*want, 5*time.Second)
				}
				assert.InDelta(t, 10*60/5, f.attempts(), 20)
				assert.Len(t, l.losses(), f.attempts())
				for _, loss := range l.losses() {
					assert.False(t, loss.Final)
					if name != "ends at once" {
						assert.ErrorIs(t, loss.Err, errNet)
					}
				}
				assert.False(t, fo.Live())
			})
		})
	}
}

func TestAFlappingFeedIsNewsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var holds atomic.Int64
		holds.Store(int64(time.Second))
		f := &feed{watch: func(ctx context.Context, yield func(store.Notice, error) bool) {
			breaking(time.Duration(holds.Load()))(ctx, yield)
		}}
		fo, l := newFollower(t, f)
		fo.Join()
		pass(time.Hour)
		assert.Equal(t, 1, l.news(), "of a feed that breaks every few seconds for an hour")

		holds.Store(int64(follow.Firm)) // it is well for that long, and breaks: that is new trouble
		began := f.attempts()
		pass(time.Minute)
		assert.InDelta(t, 6, l.news(), 1)
		assert.InDelta(t, 6, f.attempts()-began, 1, "the pauses begin small again")
	})
}

// How long a feed took to open does not count as time that it was well.
func TestAFeedThatTakesLongToOpenAndBreaksAtOnceIsFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{watch: func(ctx context.Context, yield func(store.Notice, error) bool) {
			time.Sleep(2 * follow.Firm)
			breaking(0)(ctx, yield)
		}}
		fo, l := newFollower(t, f)
		fo.Join()
		pass(time.Hour)
		assert.Equal(t, 1, l.news())
		fo.End()
		pass(time.Minute) // it does not look at its context
	})
}

// A feed that never opened is not news: a caller that needs it gets the same fault.
func TestAFeedThatNeverOpenedIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{watch: func(_ context.Context, yield func(store.Notice, error) bool) { yield(store.Notice{}, errNet) }}
		fo, l := newFollower(t, f)
		fo.Join()
		pass(time.Hour)
		assert.Zero(t, l.news())
	})
}

// Waiters that come and go must not make a broken feed be tried more often.
func TestAWaiterThatComesBackDoesNotShortenThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{watch: breaking(0)}
		fo, l := newFollower(t, f)
		fo.Linger = 0
		for range 10_000 {
			fo.Join()
			pass(10 * time.Millisecond)
			fo.Leave()
			pass(10 * time.Millisecond)
		}
		assert.InDelta(t, 200/5, f.attempts(), 12, "attempts in 200 s")
		assert.LessOrEqual(t, l.news(), 1)
	})
}

func TestAStoreWithoutAFeedIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{watch: func(_ context.Context, yield func(store.Notice, error) bool) {
			yield(store.Notice{}, fmt.Errorf("no feed here: %w", errors.ErrUnsupported))
		}}
		fo, l := newFollower(t, f)
		for range 5 {
			fo.Join()
			pass(time.Minute)
			fo.Leave()
			pass(time.Minute)
		}
		assert.Equal(t, 1, f.attempts())
		if assert.Len(t, l.losses(), 1) {
			assert.True(t, l.losses()[0].Final)
			assert.ErrorIs(t, l.losses()[0].Err, errors.ErrUnsupported)
		}
		assert.Empty(t, l.notices())
		assert.False(t, fo.Live())
	})
}

func TestWithoutAFeedNothingIsEverLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fo := follow.New(t.Context(), nil, store.Audience{}, func(store.Notice) { t.Error("heard something") }, nil)
		fo.Join()
		pass(time.Minute)
		assert.False(t, fo.Live())
		fo.Leave()
		fo.Close()
	})
}

func TestCloseWaitsForTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{watch: func(ctx context.Context, yield func(store.Notice, error) bool) {
			yield(store.Notice{}, nil)
			<-ctx.Done()
			time.Sleep(time.Second)
			yield(work, nil) // it came as the feed was closed
		}}
		fo, l := newFollower(t, f)
		fo.Join()
		synctest.Wait()
		began := time.Now()
		fo.Close()
		assert.Equal(t, time.Second, time.Since(began))
		assert.False(t, f.isOpen())
		told := len(l.notices())
		fo.Leave()
		fo.Join()
		fo.Close()
		pass(time.Hour)
		assert.Equal(t, 1, f.attempts(), "opened after Close")
		assert.Len(t, l.notices(), told, "a notice after Close")
		assert.Empty(t, l.losses())
		assert.False(t, fo.Live())
	})
}

func TestCloseEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{watch: breaking(0)}
		fo, _ := newFollower(t, f)
		fo.Join()
		pass(time.Minute)
		began := time.Now()
		fo.Close()
		assert.Zero(t, time.Since(began))
	})
}

// A Follower is over with the context that it was made with.
func TestTheEndOfItsContextEndsAFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{watch: steady}
		ctx, cancel := context.WithCancel(t.Context())
		l := &log{}
		fo := follow.New(ctx, f, audience, l.heard, l.lost)
		fo.Join()
		synctest.Wait()
		cancel()
		synctest.Wait()
		assert.False(t, f.isOpen() || fo.Live())
		fo.Join()
		synctest.Wait()
		assert.Equal(t, 1, f.attempts())
		assert.Empty(t, l.losses(), "this is no loss: it was asked for")
	})
}

// A loss is told before the next attempt, and Live says the same.
func TestALossIsToldToTheWaitersWhichThenPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{watch: breaking(time.Minute)}
		var fo *follow.Follower
		var at []time.Duration
		began := time.Now()
		fo = follow.New(t.Context(), f, audience, func(store.Notice) { assert.True(t, fo.Live()) }, func(follow.Loss) {
			assert.False(t, fo.Live())
			fo.Join() // a callback may
			fo.Leave()
			at = append(at, time.Since(began))
		})
		fo.Join()
		pass(2*time.Minute - time.Second)
		assert.Equal(t, []time.Duration{time.Minute}, at)
		fo.Close()
	})
}

func TestAFeedThatStaysOpenIsOpenedAgainEveryFewMinutes(t *testing.T) {
	for name, watch := range map[string]func(context.Context, func(store.Notice, error) bool){
		"that ends with an error": steady,
		"that ends": func(ctx context.Context, yield func(store.Notice, error) bool) {
			if yield(store.Notice{}, nil) {
				<-ctx.Done()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, l := &feed{watch: watch}, &log{}
				follower := follow.New(t.Context(), f, audience, l.heard, l.lost)
				defer follower.Close()
				follower.Join()
				time.Sleep(time.Hour)
				synctest.Wait()
				assert.True(t, follower.Live())
				times := f.times()
				assert.InDelta(t, 12, len(times), 3, "openings in an hour: %v", times)
				for i := range times[1:] {
					pause := times[i+1] - times[i]
					assert.GreaterOrEqual(t, pause, 4*time.Minute)
					assert.LessOrEqual(t, pause, 6*time.Minute)
				}
				assert.Len(t, l.notices(), len(times), "each says: look at everything")
				for _, loss := range l.losses() {
					assert.Equal(t, follow.Loss{}, loss, "nothing for the log")
				}
			})
		})
	}
}

// A server that was deposed and does not know it goes on answering, with nothing.
func TestAFeedThatFallsSilentIsHeardAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		openings := 0
		f, l := &feed{watch: func(ctx context.Context, yield func(store.Notice, error) bool) {
			openings++
			deposed := openings == 1
			if !yield(store.Notice{}, nil) {
				return
			}
			for !deposed && ctx.Err() == nil && yield(work, nil) {
				time.Sleep(time.Second)
			}
			<-ctx.Done()
		}}, &log{}
		follower := follow.New(t.Context(), f, audience, l.heard, l.lost)
		defer follower.Close()
		follower.Join()
		time.Sleep(6*time.Minute + 2*time.Second)
		assert.Contains(t, l.notices(), work)
	})
}

func TestAFeedWhoseReaderLeavesIsNotOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := &feed{watch: steady}, &log{}
		follower := follow.New(t.Context(), f, audience, l.heard, l.lost)
		defer follower.Close()
		follower.Join()
		time.Sleep(3 * time.Minute)
		follower.Leave()
		time.Sleep(time.Hour)
		assert.Equal(t, 1, f.attempts())
		assert.False(t, f.isOpen())
	})
}

// The two are called by different goroutines, and the one that leaves may be quicker.
func TestALeaveBeforeItsJoinOpensNoFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := &feed{watch: steady}, &log{}
		follower := follow.New(t.Context(), f, audience, l.heard, l.lost)
		defer follower.Close()
		follower.Leave()
		follower.Join()
		time.Sleep(time.Minute)
		assert.False(t, f.isOpen())
		follower.Join()
		synctest.Wait()
		assert.True(t, f.isOpen())
	})
}
