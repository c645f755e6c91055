package pathlock_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/store"
)

// lockAndRelease takes and releases locks, lets one run out, and prints the events that a
// watcher has to be told of.
func lockAndRelease(ctx context.Context, p place) error {
	storage, err := p.open()
	if err != nil {
		return err
	}
	tree, err := pathlock.New(storage, "tree")
	if err != nil {
		return err
	}
	for i := range 10 {
		l, err := tree.Lock(ctx, exclusive(fmt.Sprint("/", i), time.Hour))
		if err != nil {
			return err
		}
		if err := tree.Release(ctx, l.Token); err != nil {
			return err
		}
		fmt.Printf("added %s\nreleased %s\n", l.Token, l.Token)
	}
	l, err := tree.Lock(ctx, exclusive("/brief", pathlock.MinTimeout))
	if err != nil {
		return err
	}
	fmt.Printf("added %s\nexpired %s\n", l.Token, l.Token) // the watchers have to find the latter out
	return tree.Close()
}

// toldOfAnother returns what a watcher in this process is told of what another process
// does, and what that process did.
func toldOfAnother(t *testing.T, storage pathlock.Storage, where place) (heard, said []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pace.Of(20*time.Second))
	defer cancel()
	events, err := treeOn(t, storage).Watch(ctx)
	require.NoError(t, err)
	cmd := testchild.Command(t, "locksAndReleases", where)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	output := make(chan []byte, 1)
	go func() {
		out, err := cmd.Output()
		assert.NoError(t, err)
		output <- out
	}()
	for event, err := range events {
		require.NoError(t, err)
		heard = append(heard, fmt.Sprint(event.Kind, " ", event.Lock.Token))
		if event.Kind == pathlock.Expired {
			break
		}
	}
	return heard, strings.Split(strings.TrimSpace(string(<-output)), "\n")
}

func toldOnceInOrder(t *testing.T, storage pathlock.Storage, where place) {
	t.Helper()
	heard, said := toldOfAnother(t, storage, where)
	require.Greater(t, len(said), 20)
	assert.Equal(t, said, heard, "what the other process did, and what this one was told")
}

func TestEventsOfAnotherProcessComeOnceAndInOrderInADirectory(t *testing.T) {
	dir := newDir(t)
	toldOnceInOrder(t, dir.Open(t), place{Dir: dir.path})
}

// With a feed they come as soon as they happen, under a topic of their own.
func TestEventsOfAnotherProcessComeOnceAndInOrderOnMongo(t *testing.T) {
	at := pathlock.NewPlaceOnMongo(t)
	storage := at.Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	notices := make(chan store.Notice, 100)
	if testserver.Has("capped") {
		go func() {
			for notice, err := range pathlock.FeedOf(storage).Watch(ctx, store.Audience{}) {
				if err == nil && notice != (store.Notice{}) {
					notices <- notice
				}
			}
		}()
	} else {
		notices <- store.Notice{Topic: "paths", Kind: "changed", Key: "tree"}
	}
	toldOnceInOrder(t, storage, onMongo(at))
	select {
	case n := <-notices:
		if n.Topic != "paths" || n.Kind != "changed" || n.Key != "tree" {
			t.Errorf("the notice of another process's lock is %+v", n)
		}
	case <-time.After(pace.Of(10 * time.Second)):
		t.Error("no notice came of what another process did")
	}
}
