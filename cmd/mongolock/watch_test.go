//go:build linux

package main

import (
	"context"
	"iter"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func (p *program) owner(name string) *mongolock.Client {
	p.t.Helper()
	client, err := mongolock.New(p.database().Collection("locks"), mongolock.WithOwner(name))
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestWatchHearsOfAKeyThatOthersWaitFor(t *testing.T) {
	p := newProgram(t)
	testserver.Need(t, "capped", "operationtime")
	one, two := p.owner("one"), p.owner("two")
	held, err := one.Acquire(t.Context(), "billing.nightly")
	require.NoError(t, err)
	unwanted, err := one.Acquire(t.Context(), "billing.unwanted")
	require.NoError(t, err)
	next := make(chan error, 1)
	go func() {
		_, err := two.Acquire(t.Context(), "billing.nightly")
		next <- err
	}()
	wakes := func() bool {
		names, err := p.database().ListCollectionNames(t.Context(), bson.D{{Key: "name", Value: "locks.wake"}})
		return err == nil && len(names) == 1
	}
	require.Eventually(t, wakes, pace.Of(10*time.Second), 10*time.Millisecond)

	// It looks once an hour: what it shows, it was told of.
	w := p.start("watch", "--lines", "--every", "1h", "billing.")
	w.says("listening: a key that others wait for is seen as it changes hands, the rest at a look, every 1h")
	w.says("\tgranted\tbilling.nightly\tone\t")
	w.says("\twaits\tbilling.nightly\ttwo\texclusive\t")
	time.Sleep(time.Second) // the looks are over that follow the opening of the feed, within 300 ms
	require.NoError(t, unwanted.Release())
	time.Sleep(300 * time.Millisecond) // real: an absence; a line would be there by now
	assert.NotContains(t, w.out.String(), "\tfreed\t", "nobody announces what nobody waits for")
	require.NoError(t, held.Release())
	require.NoError(t, <-next)
	w.says("\tfreed\tbilling.nightly\tone\tafter ")
	w.says("\tgranted\tbilling.nightly\ttwo\t")
	w.says("\tfreed\tbilling.unwanted\tone\tafter ")
	w.signal(syscall.SIGINT)
	assert.Equal(t, 0, w.code())
}

func TestWatchMakesNothingAndSaysThatItDoesNotListen(t *testing.T) {
	p := newProgram(t)
	w := p.start("watch", "--lines", "--every", "50ms")
	w.says("not listening, as nobody has waited here yet (there is no collection " + p.database().Name() + ".locks.wake): looking every 50ms")
	names, err := p.database().ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.Empty(t, names)
	lease, err := p.owner("one").Acquire(t.Context(), "nightly")
	require.NoError(t, err)
	w.says("\tgranted\tnightly\tone\t")
	require.NoError(t, lease.Release())
	w.says("\tfreed\tnightly\tone\t")
	w.signal(syscall.SIGINT)
	assert.Equal(t, 0, w.code())
}

func TestAWatchLooksLessOftenWhileItListensAndNothingChanges(t *testing.T) {
	l := newLookout(t.Context(), "", nil, nil, nil)
	assert.Equal(t, lookOften, l.next(false), "without a feed")
	l.net = lookSeldom
	assert.Equal(t, lookOften, l.next(false), "without a feed")
	l.soon = 1
	assert.Equal(t, lookApart, l.next(false), "after a wake-up")
	each := 20 * time.Millisecond
	assert.Equal(t, each, newLookout(t.Context(), "", &each, nil, nil).next(false))
}

// A line that wraps would scroll the table off the screen.
func TestNoLineOfTheTableThatWatchDrawsIsLongerThanTheTerminalIsWide(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	long := strings.Repeat("é", 500)
	a := &app{cli: &cli{}, stdout: &out}
	require.NoError(t, new(watchCmd).draw(a, &printer{}, nil, []change{{Kind: "granted", Key: long, Owner: long}}, long))
	for _, line := range strings.Split(strings.NewReplacer(home, "", clearLine, "", clearBelow, "").Replace(out.String()), "\r\n") {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 80, line)
	}
}

// An early store's clock is an hour ahead.
type early struct{ store.Store }

func (e early) List(ctx context.Context, prefix string) iter.Seq2[store.Status, error] {
	return func(yield func(store.Status, error) bool) {
		for s, err := range e.Store.List(ctx, prefix) {
			s.Now = s.Now.Add(time.Hour)
			for i := range s.Holders {
				s.Holders[i].Since = s.Holders[i].Since.Add(time.Hour)
				s.Holders[i].ExpireAt = s.Holders[i].ExpireAt.Add(time.Hour)
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// A key that has vanished shows no time.
func TestHowLongAVanishedKeyWasHeldIsByTheServersClock(t *testing.T) {
	t.Parallel()
	client, err := mongolock.NewWithStore(early{memstore.New()})
	require.NoError(t, err)
	defer client.Close()
	lease, err := client.Acquire(t.Context(), "k")
	require.NoError(t, err)
	var c watchCmd
	before, err := c.look(t.Context(), client)
	require.NoError(t, err)
	require.Len(t, before, 1)
	require.NoError(t, lease.Release())
	now, err := c.look(t.Context(), client)
	require.NoError(t, err)
	require.Empty(t, now)
	changes := now.since(before, c.now())
	require.Len(t, changes, 1)
	assert.WithinDuration(t, time.Now().Add(time.Hour), changes[0].At, 10*time.Minute)
}
