//go:build unix

package leader_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/leader"
)

func TestMain(m *testing.M) { testchild.Main(m, testchild.Roles{"candidate": testchild.As(stand)}) }

const key = "billing"

// settings are what a candidate's process is told.
type settings struct {
	URI, Collection, Name string
	TermTTL               time.Duration
}

func (s settings) client() (*mongolock.Client, func() error, error) {
	conn, err := mongo.Connect(options.Client().ApplyURI(s.URI))
	if err != nil {
		return nil, nil, err
	}
	locks, err := mongolock.New(conn.Database("mongolock_leader").Collection(s.Collection),
		mongolock.WithOwner(s.Name), mongolock.TTL(s.TermTTL), mongolock.WithoutIndex())
	if err != nil {
		return nil, nil, err
	}
	return locks, func() error { return errors.Join(locks.Close(), conn.Disconnect(context.Background())) }, nil
}

// stand is a process with a candidate that runs until the process is told to end.
// Whenever the process finds that it was stopped for longer than a term lasts, it prints
// what IsLeader answers first after that.
func stand(ctx context.Context, s settings) error {
	locks, leave, err := s.client()
	if err != nil {
		return err
	}
	c, err := leader.New(locks, key)
	if err != nil {
		return err
	}
	go func() {
		for last := time.Now(); ctx.Err() == nil; time.Sleep(time.Millisecond) {
			leads, now := c.IsLeader(), time.Now()
			if stopped := now.Sub(last); stopped > s.TermTTL {
				fmt.Println("stopped, and leads:", leads)
			}
			last = now
		}
	}()
	go func() {
		for range testchild.Told(ctx) {
			for !c.IsLeader() && ctx.Err() == nil { // others can see its term before it does
				time.Sleep(time.Millisecond)
			}
			fmt.Println("resigned:", c.Resign(ctx))
		}
	}()
	err = c.Run(ctx, func(ctx context.Context, term leader.Term) error {
		fmt.Println("leads:", term.Token())
		<-ctx.Done()
		fmt.Println("over:", context.Cause(ctx))
		return ctx.Err()
	})
	return errors.Join(err, leave())
}

// An election has three candidates, each in a process of its own, on a server, and a
// client that watches them.
type election struct {
	*testing.T
	*mongolock.Client
	running map[string]*testchild.Process
	termTTL time.Duration // longer on a busy machine, where a leader renews late
	worst   time.Duration // the slowest look: how busy this machine is
}

func newElection(t *testing.T) *election {
	t.Helper()
	s := settings{URI: testserver.URI(t, "atomic"), Collection: "locks_" + rand.Text()[:8], Name: "watcher", TermTTL: pace.Of(2 * time.Second)}
	locks, leave, err := s.client()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, leave()) })
	e := &election{T: t, Client: locks, running: map[string]*testchild.Process{}, termTTL: s.TermTTL}
	for i := range 3 {
		s.Name = fmt.Sprint("candidate-", i)
		e.running[s.Name] = testchild.Start(t, "candidate", s)
	}
	return e
}

// sees looks until there is a leader whose term is not that one, and returns it with the
// server's time of the look.
func (e *election) sees(not string) (mongolock.Holder, time.Time) {
	e.Helper()
	for began := time.Now(); time.Since(began) < testchild.Patience; time.Sleep(5 * time.Millisecond) {
		asked := time.Now()
		status, err := e.Inspect(e.Context(), key)
		e.worst = max(e.worst, time.Since(asked))
		require.NoError(e, err)
		for _, h := range status.Holders {
			if status.Live(h) && h.ID != not {
				return h, status.Now
			}
		}
	}
	require.Fail(e, "nobody leads")
	return mongolock.Holder{}, time.Time{}
}

// within fails if a change took too long.
func (e *election) within(limit time.Duration, what string, took time.Duration) {
	e.Helper()
	e.Logf("%s: the next led %v later; the slowest look took %v", what, took.Round(time.Millisecond), e.worst.Round(time.Millisecond))
	assert.LessOrEqual(e, took, pace.Of(limit)+5*e.worst, "%s: until the next led", what)
}

func TestMongoOneOfThreeProcessesLeadsAndThenTheNext(t *testing.T) {
	e := newElection(t)

	first, killed := e.sees("")
	e.running[first.Owner].Kill()
	delete(e.running, first.Owner)
	second, now := e.sees(first.ID)
	assert.False(t, now.Before(first.ExpireAt), "%s led at %v, and %s was believed to live until %v", second.Owner, now, first.Owner, first.ExpireAt)
	e.within(e.termTTL+time.Second, "killed with -9", now.Sub(killed))

	second, resigned := e.sees("") // which may have changed, on a busy machine
	e.running[second.Owner].Tell("resign")
	third, now := e.sees(second.ID)
	assert.NotEqual(t, second.Owner, third.Owner, "it resigned, and leads")
	e.within(500*time.Millisecond, "resigned", now.Sub(resigned))

	third, stopped := e.sees("")
	sleeper := e.running[third.Owner]
	require.NoError(t, sleeper.Process.Signal(syscall.SIGSTOP))
	fourth, now := e.sees(third.ID)
	e.within(e.termTTL+time.Second, "stopped", now.Sub(stopped))
	time.Sleep(e.termTTL) // in all it was stopped for longer than a term lasts
	require.NoError(t, sleeper.Process.Signal(syscall.SIGCONT))
	for {
		if leads, is := strings.CutPrefix(sleeper.Says(), "stopped, and leads: "); is {
			assert.Equal(t, "false", leads, "%s was stopped while %s took over, and said this when it went on", third.Owner, fourth.Owner)
			break
		}
	}
	for name, p := range e.running {
		p.End()
		e.rising(name, p)
	}
}

// rising checks that the tokens of a process's terms rose.
func (e *election) rising(name string, p *testchild.Process) {
	e.Helper()
	var last int64
	for line := range p.Saying() {
		var token int64
		if n, _ := fmt.Sscanf(line, "leads: %d", &token); n == 1 && token <= last {
			e.Errorf("%s led with token %d after %d", name, token, last)
		} else if n == 1 {
			last = token
		}
	}
}
