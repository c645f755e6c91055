//go:build unix

package assign_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/store/memstore"
)

func TestMain(m *testing.M) {
	testchild.Main(m, testchild.Roles{"worker": testchild.As(serve), "panics": testchild.As(panics)})
}

// settings are what a worker's process is told.
type settings struct {
	URI, Collection, Name string
	Partitions            int
	TTL                   time.Duration
}

func (s settings) client() (*mongolock.Client, func() error, error) {
	conn, err := mongo.Connect(options.Client().ApplyURI(s.URI))
	if err != nil {
		return nil, nil, err
	}
	locks, err := mongolock.New(conn.Database("mongolock_assign").Collection(s.Collection),
		mongolock.WithOwner(s.Name), mongolock.TTL(s.TTL), mongolock.WithoutIndex())
	if err != nil {
		return nil, nil, err
	}
	return locks, func() error { return errors.Join(locks.Close(), conn.Disconnect(context.Background())) }, nil
}

// serve is a process that works until it is told to end. For each time that it worked on a partition
// it prints from when until when it certainly was entitled to.
func serve(ctx context.Context, s settings) error {
	locks, leave, err := s.client()
	if err != nil {
		return err
	}
	err = assign.Run(ctx, locks, name, s.Partitions, func(ctx context.Context, p assign.Partition) error {
		began := time.Now()
		ended := began
		for now := time.Now(); ctx.Err() == nil; now = time.Now() { // the clock comes first: the process may stop anywhere
			ended = now
			time.Sleep(time.Millisecond)
		}
		fmt.Println("worked", p.ID, p.Token, began.UnixNano(), ended.UnixNano())
		return ctx.Err()
	}, assign.Settle(0))
	return errors.Join(err, leave())
}

// A span is one time that a process worked on a partition.
type span struct {
	id           int
	token        int64
	began, ended int64
}

func TestProcessesThatEndAreKilledOrStoppedHandTheirPartitionsOver(t *testing.T) {
	s := settings{URI: testserver.URI(t, "atomic"), Collection: "locks_" + rand.Text()[:8], Name: "watcher", Partitions: 24, TTL: pace.Of(2 * time.Second)}
	locks, leave, err := s.client()
	require.NoError(t, err)
	defer func() { assert.NoError(t, leave()) }()
	running := map[string]*testchild.Process{}
	for i := range 4 {
		s.Name = fmt.Sprint("process-", i)
		running[s.Name] = testchild.Start(t, "worker", s)
	}
	until := func(what string, names ...string) {
		t.Helper()
		var shares map[string]int
		for began := time.Now(); time.Since(began) < testchild.Patience; time.Sleep(20 * time.Millisecond) {
			state, err := assign.Look(t.Context(), locks, name)
			require.NoError(t, err)
			shares = map[string]int{}
			for _, p := range state.Partitions {
				shares[p.Owner]++
			}
			if !slices.ContainsFunc(names, func(n string) bool { return shares[n] != s.Partitions/len(names) }) {
				t.Log(what, "after", time.Since(began).Round(time.Millisecond))
				return
			}
		}
		t.Fatal(what, ": ", shares)
	}
	until("all have come", "process-0", "process-1", "process-2", "process-3")
	require.NoError(t, running["process-0"].Process.Signal(syscall.SIGSTOP))
	until("one is stopped", "process-1", "process-2", "process-3")
	require.NoError(t, running["process-0"].Process.Signal(syscall.SIGCONT))
	until("it goes on", "process-0", "process-1", "process-2", "process-3")
	running["process-1"].Kill()
	until("one is killed", "process-0", "process-2", "process-3")
	running["process-2"].End()
	until("one has ended", "process-0", "process-3")
	running["process-3"].End()
	running["process-0"].End()

	var all []span
	for name, p := range running {
		for line := range p.Saying() {
			if words, ok := strings.CutPrefix(line, "worked "); ok {
				var one span
				_, err := fmt.Sscan(words, &one.id, &one.token, &one.began, &one.ended)
				require.NoError(t, err, "%s: %s", name, line)
				all = append(all, one)
			}
		}
	}
	assert.GreaterOrEqual(t, len(all), s.Partitions*2)
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.began, b.began)) })
	for i := 1; i < len(all); i++ {
		if before, next := all[i-1], all[i]; before.id == next.id {
			assert.LessOrEqual(t, before.ended, next.began, "partition %d", next.id)
			assert.Less(t, before.token, next.token, "partition %d", next.id)
		}
	}
}

// panics is a process whose work panics.
func panics(ctx context.Context, _ struct{}) error {
	s := lab.New(memstore.New())
	s.On(lab.Release, func(_ context.Context, call *lab.Call) error {
		fmt.Println("releases", call.Key)
		return call.Do()
	})
	locks, err := mongolock.NewWithStore(s)
	if err != nil {
		return err
	}
	return assign.Run(ctx, locks, name, 1, func(context.Context, assign.Partition) error { panicHere(); return nil })
}

func panicHere() { panic("the work's own words") }

func TestAPanicFreesItsPartitionAndEndsTheProcess(t *testing.T) {
	cmd := testchild.Command(t, "panics", struct{}{})
	_, err := cmd.StdinPipe() // the process's context ends with its input
	require.NoError(t, err)
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 2, exit.ExitCode())
	assert.Contains(t, string(said), "releases orders/0000\n")
	assert.Contains(t, string(said), "panic: the work's own words")
	assert.Contains(t, string(said), "assign_test.panicHere(")
}
