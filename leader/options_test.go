package leader_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/leader"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestALeaseThatOthersMayShareIsRefused(t *testing.T) {
	client := lab.Client(t, memstore.New())
	for want, opts := range map[string][]mongolock.AcquireOption{
		"leader: With(Shared()): several processes would lead at the same time":                     {mongolock.Shared()},
		"leader: With(OneOf(3)): several processes would lead at the same time":                     {mongolock.TTL(time.Second), mongolock.OneOf(3)},
		"leader: With(OneOf(1)): several processes would lead at the same time":                     {mongolock.OneOf(1)},
		"leader: With(MaxWait(5s)): a candidate waits until it leads":                               {mongolock.MaxWait(5 * time.Second)},
		"leader: With(MinHold(1m0s)): the key would stay taken after a leader resigned":             {mongolock.MinHold(time.Minute)},
		"at the same time\nleader: With(MinHold(1s)): the key would stay taken after a leader resi": {mongolock.Shared(), mongolock.MinHold(time.Second)},
	} {
		_, err := leader.New(client, "billing", leader.With(opts...))
		assert.ErrorContains(t, err, want)
	}
	_, err := leader.New(client, "billing", leader.With(mongolock.TTL(time.Second), mongolock.Note("version 7"), mongolock.MaxHold(time.Hour)))
	assert.NoError(t, err, "what a leader can use")
}

// The control: two that share a key hold it at the same time. So two candidates would
// lead, if their options were not looked at.
func TestControlASharedKeyHasTwoHoldersAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lab.Client(t, memstore.New())
		one, err := client.TryAcquire(t.Context(), "billing", mongolock.Shared())
		require.NoError(t, err)
		two, err := client.TryAcquire(t.Context(), "billing", mongolock.Shared())
		require.NoError(t, err)
		assert.NoError(t, one.Err())
		assert.NoError(t, two.Err())
		assert.NoError(t, one.Release())
		assert.NoError(t, two.Release())
	})
}

// logged runs a candidate for a minute and returns what it has logged.
func logged(t *testing.T, s store.Store, fn leader.Func) string {
	t.Helper()
	var said bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&said, nil))
	client := lab.Client(t, s, mongolock.TTL(9*time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, leader.Run(ctx, client, "billing", fn, leader.WithLogger(logger)))
	require.NoError(t, client.Close())
	return said.String()
}

func TestAnElectionThatFailsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lab.New(memstore.New())
		s.CutOff(errCut)
		time.AfterFunc(59*time.Second, func() { s.CutOff(nil) }) // virtual
		said := logged(t, s, func(ctx context.Context, _ leader.Term) error { <-ctx.Done(); return nil })
		assert.Contains(t, said, "leader: acquiring the key failed, trying again")
	})
}

func TestAnErrorOfTheWorkIsLoggedIfItsTermWasLostAtTheSameTime(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(context.Context) error
		want bool
	}{
		{"an error of its own", func(context.Context) error { return errors.New("disk full") }, true},
		{"the context's error", func(ctx context.Context) error { return fmt.Errorf("stopped: %w", ctx.Err()) }, false},
		{"the context's cause", context.Cause, false},
		{"no error", func(context.Context) error { return nil }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := lab.New(memstore.New())
				terms := 0
				said := logged(t, s, func(ctx context.Context, _ leader.Term) error {
					if terms++; terms > 1 {
						<-ctx.Done()
						return nil
					}
					s.CutOff(errCut) // so the term is lost
					<-ctx.Done()
					s.CutOff(nil)
					return c.fail(ctx)
				})
				assert.Equal(t, 2, terms, "it stands again")
				const line = "leader: the work failed while its term ended"
				if c.want {
					assert.Contains(t, said, line)
					assert.Contains(t, said, "disk full")
				} else {
					assert.NotContains(t, said, line)
				}
			})
		})
	}
}

// The defaults of a client are for its work. A lease that they ended while it shows a priority, or a wait,
// would cost the candidate its place in line.
func TestACandidateKeepsItsPlaceWhateverItsClientsDefaultsAre(t *testing.T) {
	for name, def := range map[string]mongolock.ClientOption{
		"MaxStall": mongolock.MaxStall(20 * time.Second), "MaxHold": mongolock.MaxHold(20 * time.Second), "MaxWait": mongolock.MaxWait(time.Second),
	} {
		for _, rank := range []int{0, 5} {
			t.Run(fmt.Sprint(name, " of one of priority ", rank), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					in, r := memstore.New(), newReign()
					stop := r.candidate(t, in, "first")
					r.leads(t, "first", 0)
					client := lab.Client(t, in, def)
					end := r.stand(t, client, "second", leader.Priority(rank))
					place := func() (all []store.Place) {
						looked, err := in.Look(t.Context(), []string{"billing"})
						require.NoError(t, err)
						return looked[0].Waiting("")
					}
					time.Sleep(time.Second)
					was := place()
					require.Len(t, was, 1)
					for range 600 {
						time.Sleep(time.Second)
						if !assert.Equal(t, was, place()) {
							break
						}
					}
					stop()
					r.leads(t, "second", 10*time.Millisecond)
					end()
					require.NoError(t, client.Close())
				})
			})
		}
	}
}

// A store that hangs refuses no claim: the call is over because of MaxWait alone.
func TestACandidateWaitsForAStoreThatHangsLongerThanItsClientsMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, r := lab.New(memstore.New()), newReign()
		client := lab.Client(t, in, mongolock.MaxWait(5*time.Second))
		in.All(lab.Hang)
		end := r.stand(t, client, "it")
		time.Sleep(time.Minute)
		in.All(nil)
		r.leads(t, "it", 15*time.Second)
		end()
		require.NoError(t, client.Close())
	})
}

func TestAnErrorOfTheWorkAfterTheEndOfRunIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lab.Client(t, memstore.New())
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		unwritten := errors.New("the last batch was not written")
		err := leader.Run(ctx, client, "billing", func(ctx context.Context, _ leader.Term) error {
			<-ctx.Done()
			return unwritten
		})
		assert.ErrorIs(t, err, unwritten)
		require.NoError(t, client.Close())
	})
}

// No option turns renewal on again.
func TestAPriorityIsRefusedToAClientWhoseLeasesAreNotRenewed(t *testing.T) {
	client := lab.Client(t, memstore.New(), mongolock.NoRenewal())
	_, err := leader.New(client, "billing", leader.Priority(1))
	assert.ErrorContains(t, err, "NoRenewal")
	_, err = leader.New(client, "billing", leader.Priority(0))
	assert.NoError(t, err, "it shows nothing")
}
