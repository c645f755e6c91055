package pathlock_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/store"
)

// chat locks and releases in turn, lets one lock run out, and writes down what a listener
// has to be told of it.
func chat(where string) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ctx := context.Background()
	tree, err := pathlock.New(placed(where), "tree")
	must(err)
	for i := range 10 {
		l, err := tree.Lock(ctx, exclusive(fmt.Sprint("/", i), time.Hour))
		must(err)
		must(tree.Release(ctx, l.Path, l.Token))
		fmt.Printf("added %s\nreleased %s\n", l.Token, l.Token)
	}
	l, err := tree.Lock(ctx, exclusive("/brief", pathlock.MinTimeout))
	must(err)
	must(tree.Close())
	fmt.Printf("added %s\nexpired %s\n", l.Token, l.Token) // the latter is for those who listen to find out
	os.Exit(0)
}

// told is what a listener in this process is told of what another does.
func told(t *testing.T, storage pathlock.Storage, where string) (heard, said []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	events, err := treeOn(t, storage).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childPlace+"="+where, childChats+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	output := make(chan []byte, 1)
	go func() {
		out, err := cmd.Output()
		if err != nil {
			t.Error(err)
		}
		output <- out
	}()
	for event, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, fmt.Sprint(event.Kind, " ", event.Lock.Token))
		if event.Kind == pathlock.Expired {
			break
		}
	}
	return heard, strings.Split(strings.TrimSpace(string(<-output)), "\n")
}

func toldOnceInOrder(t *testing.T, storage pathlock.Storage, where string) {
	t.Helper()
	heard, said := told(t, storage, where)
	if len(said) < 20 || fmt.Sprint(heard) != fmt.Sprint(said) {
		t.Errorf("the other process did\n%s\nand this one was told\n%s", strings.Join(said, "\n"), strings.Join(heard, "\n"))
	}
}

func TestAnotherProcessesEventsComeOnceEachInOrderInADirectory(t *testing.T) {
	dir := newDir(t)
	toldOnceInOrder(t, dir.Open(t), dir.path)
}

// And with a feed as soon as they happen, under a topic of their own.
func TestAnotherProcessesEventsComeOnceEachInOrderOnMongo(t *testing.T) {
	place := pathlock.NewPlaceOnMongo(t)
	storage := place.Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	notices := make(chan store.Notice, 100)
	if testserver.Has("capped") {
		go func() {
			for notice, err := range storage.(store.Feed).Watch(ctx) {
				if err == nil && notice != (store.Notice{}) {
					notices <- notice
				}
			}
		}()
	} else {
		notices <- store.Notice{Topic: pathlock.TopicPaths, Kind: pathlock.KindChanged, Key: "tree"}
	}
	db, coll := place.Where()
	toldOnceInOrder(t, storage, db+"."+coll)
	select {
	case n := <-notices:
		if n.Topic != pathlock.TopicPaths || n.Kind != pathlock.KindChanged || n.Key != "tree" {
			t.Errorf("the notice of another process's lock is %+v", n)
		}
	case <-time.After(10 * time.Second):
		t.Error("no notice came of what another process did")
	}
}
