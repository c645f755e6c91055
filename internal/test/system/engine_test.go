package system

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
)

// count is the number of documents in the collection.
func (f *fixture) count() int64 {
	f.t.Helper()
	n, err := f.coll.CountDocuments(f.ctx(), bson.D{})
	require.NoError(f.t, err)
	return n
}

func TestALeaseNotRenewedIsRefusedJustBeforeItsEndAndGrantedJustAfter(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	one, two := f.client(), f.client()
	l := f.acquire(one, "k", mongolock.TTL(pace.Of(1500*time.Millisecond)), mongolock.NoRenewal())
	inside.Abandon(l)
	honoured := inside.Honoured(l)
	var refused, granted time.Time
	var taken *mongolock.Lease
	for taken == nil {
		asked := time.Now()
		next, err := two.TryAcquire(f.ctx(), "k")
		switch {
		case err == nil:
			taken, granted = next, time.Now()
		case errors.Is(err, mongolock.ErrHeld):
			refused = asked
			require.NotNil(t, f.document("k"), "the old document is gone")
		default:
			t.Fatal(err)
		}
	}
	assert.False(t, granted.Before(honoured), "granted %v before the end", honoured.Sub(granted))
	f.within(100*time.Millisecond, honoured.Sub(refused), "from the last refusal to the end")
	f.within(slack, granted.Sub(honoured), "granted after the end")
	f.mustHold(taken)
	f.release(taken)
}

func TestAHeldLockIsNeverSeenWithoutItsExpiry(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	one, two := f.client(), f.client()
	stop := make(chan struct{})
	var looks, seen int
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			raw, err := f.coll.FindOne(context.Background(), bson.D{{Key: "_id", Value: "k"}}).Raw()
			looks++
			if err != nil {
				continue
			}
			seen++
			d := readLock(raw)
			assert.Equal(t, 1, d.Mark, "seen: %v", raw)
			assert.Len(t, d.Holders, 1, "seen: %v", raw)
			assert.False(t, d.ExpireAt.IsZero(), "seen: %v", raw)
			assert.False(t, d.ExpireAt.Before(d.only().ExpireAt), "seen: %v", raw)
		}
	})
	for i := range 60 {
		c := []*mongolock.Client{one, two}[i%2]
		l := f.acquire(c, "k")
		if i%3 == 0 {
			assert.NoError(t, l.Renew(f.ctx()))
		}
		f.release(l)
	}
	close(stop)
	wg.Wait()
	assert.NotZero(t, seen, "%d looks saw no lock: the test shows nothing", looks)
}

func TestARenewalKeepsTheTokenAndTheHoldersName(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	l := f.acquire(f.client(), "k", mongolock.Note("note"))
	before := readLock(f.document("k"))
	token := l.Token()
	after := before
	for renewals := 0; renewals < 3 || !after.ExpireAt.After(before.ExpireAt); renewals++ {
		require.LessOrEqual(t, renewals, 200, "not renewed") // each end rests on a sample that may be better or worse than the first
		require.NoError(t, l.Renew(f.ctx()))
		after = readLock(f.document("k"))
		time.Sleep(5 * time.Millisecond) // real: the server's clock goes on
	}
	assert.Equal(t, token, l.Token(), "it was %+v and is %+v", before, after)
	assert.Equal(t, before.Rev, after.Rev, "it was %+v and is %+v", before, after)
	assert.True(t, after.only().Since.Equal(before.only().Since), "it was %+v and is %+v", before, after)
	assert.Equal(t, "note", after.only().Note, "it was %+v and is %+v", before, after)
	f.release(l)
}

func TestARenewalRacingTheReleaseRevivesNothing(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	one, two := f.client(), f.client()
	for i := range 25 {
		l := f.acquire(one, "k")
		renewed := make(chan error, 1)
		go func() { renewed <- l.Renew(f.ctx()) }()
		f.release(l)
		next, err := two.TryAcquire(f.ctx(), "k")
		require.NoError(t, err, "round %d: released", i)
		if err := <-renewed; err != nil && !errors.Is(err, mongolock.ErrReleased) && !errors.Is(err, mongolock.ErrLost) {
			t.Errorf("the renewal answers %v", err)
		}
		assert.ErrorIs(t, l.Err(), mongolock.ErrReleased, "reported as")
		f.mustHold(next)
		f.release(next)
	}
}

func TestAWaiterGetsAnExpiredKeySoonAfterItsEndAndNeverBefore(t *testing.T) {
	t.Parallel()
	f := newFixtureOnAny(t)
	ttl := pace.Of(700 * time.Millisecond)
	f.expiresInTime(f.client(mongolock.TTL(ttl)), f.client(), ttl)
}

// tries makes one TryAcquire per client, all at once, and returns the leases that were
// granted.
func (f *fixture) tries(clients []*mongolock.Client, key string) (winners []*mongolock.Lease) {
	f.t.Helper()
	begin := make(chan struct{})
	answers := make(chan outcome, len(clients))
	for _, c := range clients {
		go func() {
			<-begin
			l, err := c.TryAcquire(f.ctx(), key)
			answers <- outcome{lease: l, err: err}
		}()
	}
	close(begin)
	for range clients {
		a := <-answers
		var held *mongolock.HeldError
		switch {
		case a.err == nil:
			winners = append(winners, a.lease)
		case !errors.As(a.err, &held):
			f.t.Errorf("answered %v", a.err)
		case mongo.IsDuplicateKeyError(a.err):
			f.t.Errorf("a raw error of the database: %v", a.err)
		}
	}
	return winners
}

func (f *fixture) clients(n int, opts ...mongolock.ClientOption) (all []*mongolock.Client) {
	f.t.Helper()
	for range n {
		all = append(all, f.client(opts...))
	}
	return all
}

func TestOneOfManySimultaneousTriesWins(t *testing.T) {
	// Not parallel: it keeps the server busy.
	f := newFixture(t, "atomic")
	clients := f.clients(20)
	for round := range 5 {
		fresh, late, odd := fmt.Sprint("new ", round), fmt.Sprint("expired ", round), fmt.Sprint("swapped ", round)
		f.insertExpired(late, -time.Second)
		f.insertExpired(odd, time.Minute)
		for _, key := range []string{fresh, late, odd} {
			winners := f.tries(clients, key)
			require.Len(t, winners, 1, "%s: winners", key)
			f.mustHold(winners[0])
			f.release(winners[0])
		}
	}
}

func TestAClientThatReacquiresInALoopDoesNotStarveAnother(t *testing.T) {
	// Not parallel: it keeps the server busy.
	f := newFixture(t, "atomic")
	greedy, modest := f.client(), f.client()
	ctx, stop := context.WithCancel(f.ctx())
	var wg sync.WaitGroup
	for range 2 { // so that one of them always waits
		wg.Go(func() {
			for ctx.Err() == nil {
				l, err := greedy.Acquire(ctx, "k")
				if err != nil {
					continue
				}
				time.Sleep(2 * time.Millisecond) // real: it holds the key for a while
				_ = l.Release()
			}
		})
	}
	for range 3 {
		begin := time.Now()
		l := f.acquire(modest, "k")
		f.within(5*time.Second, time.Since(begin), "served")
		f.release(l)
	}
	stop()
	wg.Wait()
}

func TestTokensRiseWhateverEndsAHold(t *testing.T) {
	// Not parallel: it keeps the server busy.
	f := newFixture(t, "atomic")
	clients := f.clients(3, mongolock.TTL(pace.Of(5*time.Second)))
	var last int64
	tryAcquire := func(l *mongolock.Lease) {
		t.Helper()
		if l.Token() <= last {
			t.Fatalf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
	}
	remove := func(filter bson.D) {
		if _, err := f.coll.DeleteMany(f.ctx(), filter); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 200 {
		c := clients[i%3]
		var opts []mongolock.AcquireOption
		if i%7 == 5 { // or a renewal may come before the takeover
			opts = append(opts, mongolock.NoRenewal())
		}
		l := f.acquire(c, "k", opts...)
		tryAcquire(l)
		switch i % 7 {
		case 0, 1: // release
			f.release(l)
		case 2: // deletion by hand
			remove(bson.D{{Key: "_id", Value: "k"}})
			_ = l.Release()
		case 3: // purge
			remove(bson.D{})
			_ = l.Release()
		case 4: // hand-over
			wait := f.inBackground(f.ctx(), c, "k")
			f.waits(c, "k")
			f.release(l)
			next := f.granted(wait).lease
			tryAcquire(next)
			f.release(next)
		case 5: // takeover of an expired one
			past := time.Now().Add(-time.Second)
			_, err := f.coll.UpdateOne(f.ctx(), bson.D{{Key: "_id", Value: "k"}}, bson.D{{Key: "$set", Value: bson.D{
				{Key: fieldExpireAt, Value: past}, {Key: fieldHolders + "." + l.ID() + "." + fieldExpireAt, Value: past},
			}}})
			require.NoError(t, err)
			next := f.acquire(clients[(i+1)%3], "k")
			tryAcquire(next)
			_ = l.Release()
			f.release(next)
		case 6: // every process restarts
			f.release(l)
			if i%49 == 6 {
				for j := range clients {
					assert.NoError(t, clients[j].Close())
					clients[j] = f.client(mongolock.TTL(pace.Of(5 * time.Second)))
				}
			}
		}
	}
}
