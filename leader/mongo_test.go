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

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/testchild"
	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/leader"
)

func TestMain(m *testing.M) { testchild.Main(m, testchild.Roles{"candidate": testchild.As(stand)}) }

const (
	office  = "office"
	termTTL = 2 * time.Second
)

// A seat is what a candidate is told.
type seat struct{ URI, Collection, Name string }

func (s seat) client() (*mongolock.Client, func() error, error) {
	conn, err := mongo.Connect(options.Client().ApplyURI(s.URI))
	if err != nil {
		return nil, nil, err
	}
	locks, err := mongolock.New(conn.Database("mongolock_leader").Collection(s.Collection),
		mongolock.WithOwner(s.Name), mongolock.TTL(termTTL), mongolock.WithoutIndex())
	if err != nil {
		return nil, nil, err
	}
	return locks, func() error { return errors.Join(locks.Close(), conn.Disconnect(context.Background())) }, nil
}

// stand is a process that stands until it is told to end. Whenever it finds that it
// was stopped for longer than a term lasts, it says what IsLeader then answers first.
func stand(ctx context.Context, s seat) error {
	locks, leave, err := s.client()
	if err != nil {
		return err
	}
	c, err := leader.New(locks, office)
	if err != nil {
		return err
	}
	go func() {
		for last := time.Now(); ctx.Err() == nil; time.Sleep(time.Millisecond) {
			leads, now := c.IsLeader(), time.Now()
			if stopped := now.Sub(last); stopped > termTTL {
				fmt.Println("stopped, and leads:", leads)
			}
			last = now
		}
	}()
	go func() {
		for range testchild.Told(ctx) {
			for !c.IsLeader() && ctx.Err() == nil { // the others can see a term before it is told of it
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

// An audience watches three candidates, each a process, on a server.
type audience struct {
	*testing.T
	*mongolock.Client
	running map[string]*testchild.Process
	worst   time.Duration // of its own trips to the server: a busy machine's measure
}

func newAudience(t *testing.T) *audience {
	t.Helper()
	s := seat{URI: testserver.URI(t, "atomic"), Collection: "locks_" + rand.Text()[:8], Name: "audience"}
	locks, leave, err := s.client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := leave(); err != nil {
			t.Error(err)
		}
	})
	a := &audience{T: t, Client: locks, running: map[string]*testchild.Process{}}
	for i := range 3 {
		s.Name = fmt.Sprint("candidate-", i)
		a.running[s.Name] = testchild.Start(t, "candidate", s)
	}
	return a
}

// sees looks until somebody leads who is not of that term, and answers with the
// server's time of the look.
func (a *audience) sees(not string) (mongolock.Holder, time.Time) {
	a.Helper()
	for began := time.Now(); time.Since(began) < testchild.Patience; time.Sleep(5 * time.Millisecond) {
		asked := time.Now()
		status, err := a.Inspect(a.Context(), office)
		a.worst = max(a.worst, time.Since(asked))
		if err != nil {
			a.Fatal(err)
		}
		for _, h := range status.Holders {
			if status.Live(h) && h.ID != not {
				return h, status.Now
			}
		}
	}
	a.Fatal("nobody leads")
	return mongolock.Holder{}, time.Time{}
}

// within fails if a change took too long.
func (a *audience) within(limit time.Duration, what string, took time.Duration) {
	a.Helper()
	a.Logf("%s: the next led %v later; the slowest look took %v", what, took.Round(time.Millisecond), a.worst.Round(time.Millisecond))
	if limit += 5 * a.worst; took > limit {
		a.Errorf("%s: the next led %v later, not within %v", what, took, limit)
	}
}

func TestMongoOfThreeProcessesOneLeadsAndThenTheNext(t *testing.T) {
	a := newAudience(t)

	first, killed := a.sees("")
	a.running[first.Owner].Kill()
	delete(a.running, first.Owner)
	second, now := a.sees(first.ID)
	if now.Before(first.ExpireAt) {
		t.Errorf("%s led at %v, and %s was believed to live until %v", second.Owner, now, first.Owner, first.ExpireAt)
	}
	a.within(termTTL+time.Second, "killed with -9", now.Sub(killed))

	second, resigned := a.sees("") // which may have changed, on a busy machine
	a.running[second.Owner].Tell("resign")
	third, now := a.sees(second.ID)
	if third.Owner == second.Owner {
		t.Errorf("%s resigned, and leads", third.Owner)
	}
	a.within(500*time.Millisecond, "resigned", now.Sub(resigned))

	third, stopped := a.sees("")
	sleeper := a.running[third.Owner]
	if err := sleeper.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	fourth, now := a.sees(third.ID)
	a.within(termTTL+time.Second, "stopped", now.Sub(stopped))
	time.Sleep(termTTL) // in all it was stopped for longer than a term lasts
	if err := sleeper.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for {
		if leads, is := strings.CutPrefix(sleeper.Says(), "stopped, and leads: "); is {
			if leads != "false" {
				t.Errorf("%s was stopped while %s took over, and when it went on it said that it led: %s", third.Owner, fourth.Owner, leads)
			}
			break
		}
	}
	for name, p := range a.running {
		p.End()
		a.rising(name, p)
	}
}

// rising looks whether the terms of a process had tokens that rose.
func (a *audience) rising(name string, p *testchild.Process) {
	a.Helper()
	var last int64
	for line := range p.Saying() {
		var token int64
		if n, _ := fmt.Sscanf(line, "leads: %d", &token); n == 1 && token <= last {
			a.Errorf("%s led with token %d after %d", name, token, last)
		} else if n == 1 {
			last = token
		}
	}
}
