// Command linecost measures what places of dead processes cost those who live, with real processes.
// From the root of the repository:
//
//	go build -o bin/linecost ./internal/test/linecost
//	bin/linecost -dir DIR dead 1 3 5 10 30      # store/filestore; or
//	bin/devmongo-light exec -- bin/linecost dead 1 3 5 10 30
//	bin/linecost -dir DIR -every 500ms crash    # and on a server, as above
//
// dead: so many processes join the line of a held key and are killed with -9; then one waiter that
// lives joins. The holder releases: how long is the key free?
//
// crash: two processes take the key in a loop, a third does so too and is killed with -9, and
// started again, every so often. How many grants are there in 15 s, and how long was the key idle?
// -every 0 kills nobody.
//
//	bin/linecost -dir DIR -for 1m crowd 32 100 300
//
// crowd: so many processes take the key in a loop. How alike are their shares (Jain's index), and how long was the
// longest wait, in median waits?
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/filestore"
)

var (
	dir    = flag.String("dir", "", "keep the locks in files of this directory; otherwise on MONGODB_URI")
	coll   = flag.String("coll", "", "the collection")
	every  = flag.Duration("every", 500*time.Millisecond, "crash: kill the third process so often; 0: never")
	length = flag.Duration("for", 15*time.Second, "crash, crowd: for so long")
	hold   = flag.Duration("hold", 2*time.Millisecond, "crash, crowd: how long a lease is used")
	ttl    = flag.Duration("ttl", 700*time.Millisecond, "crash, crowd: the TTL")
	long   = flag.Duration("held", time.Second, "dead: how long the holder goes on when all are in line")
	gone   = flag.Bool("gone", false, "dead: the holder's process closes its client after the release")
	again  = flag.Bool("again", false, "dead: the holder takes its place in line again after the release")
)

func client() *mongolock.Client {
	opt := mongolock.WithLogger(slog.New(slog.DiscardHandler))
	if *dir != "" {
		s, err := filestore.Open(*dir)
		check(err)
		c, err := mongolock.NewWithStore(s, opt)
		check(err)
		return c
	}
	db, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")))
	check(err)
	c, err := mongolock.New(db.Database("linecost").Collection(*coll), opt)
	check(err)
	return c
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	flag.Parse()
	log.SetFlags(0)
	if *coll == "" {
		*coll = fmt.Sprint("locks", os.Getpid())
	}
	switch flag.Arg(0) {
	case "dead":
		for _, k := range flag.Args()[1:] {
			n, err := strconv.Atoi(k)
			check(err)
			dead(n)
		}
	case "crash":
		crash()
	case "crowd":
		for _, n := range flag.Args()[1:] {
			n, err := strconv.Atoi(n)
			check(err)
			crowd(n)
		}
	case "wait":
		fmt.Fprintln(os.Stdout, "up")
		_, err := client().Acquire(context.Background(), flag.Arg(1))
		check(err)
		fmt.Fprintln(os.Stdout, "in")
		select {}
	case "loop":
		c := client()
		fmt.Fprintln(os.Stdout, "up")
		for {
			l, err := c.Acquire(context.Background(), "k", mongolock.TTL(*ttl))
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				continue
			}
			fmt.Fprintln(os.Stdout, "in", time.Now().UnixNano())
			time.Sleep(*hold)
			_ = l.Release()
		}
	default:
		log.Fatal("dead, crash or crowd?")
	}
}

// A child is a process of this program.
type child struct {
	*exec.Cmd
	mu  sync.Mutex
	in  []time.Time
	up  chan struct{}
	end chan struct{}
}

func start(args ...string) *child {
	c := &child{up: make(chan struct{}), end: make(chan struct{})}
	c.Cmd = exec.Command(os.Args[0], append([]string{"-dir", *dir, "-coll", *coll, "-hold", hold.String(), "-ttl", ttl.String()}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	check(err)
	check(c.Start())
	go func() {
		defer close(c.end)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			what, at, _ := strings.Cut(lines.Text(), " ")
			if what == "up" {
				close(c.up)
				continue
			}
			n, _ := strconv.ParseInt(at, 10, 64)
			c.mu.Lock()
			c.in = append(c.in, time.Unix(0, n))
			c.mu.Unlock()
		}
	}()
	return c
}

func (c *child) kill() {
	_ = c.Process.Kill()
	<-c.end
	_ = c.Wait()
}

func inLine(c *mongolock.Client, key string, n int) {
	for {
		s, err := c.Inspect(context.Background(), key)
		check(err)
		if len(s.Line) >= n {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func dead(k int) {
	key := fmt.Sprint("dead", k)
	holder, waiter := client(), client()
	defer func() { _ = errors.Join(holder.Close(), waiter.Close()) }() // all is measured by then
	l, err := holder.Acquire(context.Background(), key)
	check(err)
	var all []*child
	for i := range k {
		all = append(all, start("wait", key))
		inLine(holder, key, i+1)
	}
	for _, c := range all {
		c.kill()
	}
	granted := make(chan time.Time, 1)
	go func() {
		l, err := waiter.Acquire(context.Background(), key)
		check(err)
		granted <- time.Now()
		_ = l.Release()
	}()
	inLine(holder, key, k+1)
	time.Sleep(*long)
	begin := time.Now()
	check(l.Release())
	if *gone {
		go func() { _ = holder.Close() }()
	}
	if *again {
		go func() {
			if l, err := holder.Acquire(context.Background(), key); err == nil {
				_ = l.Release()
			}
		}()
	}
	took := (<-granted).Sub(begin)
	fmt.Fprintf(os.Stdout, "%2d dead: the key is idle for %v\n", k, took.Round(time.Millisecond))
}

func crash() {
	if *dir != "" {
		*dir = filepath.Join(*dir, fmt.Sprint(os.Getpid()))
	}
	one, two := start("loop"), start("loop")
	<-one.up
	<-two.up
	all := []*child{one, two}
	victim := start("loop")
	all = append(all, victim)
	<-victim.up
	begin, kills := time.Now(), 0
	for end := begin.Add(*length); time.Now().Before(end); {
		pause := time.Until(end)
		if *every > 0 {
			pause = min(pause, *every)
		}
		time.Sleep(pause)
		if *every > 0 {
			victim.kill()
			kills++
			victim = start("loop")
			all = append(all, victim)
		}
	}
	stop := time.Now()
	for _, c := range []*child{one, two, victim} {
		c.kill()
	}
	var times []time.Time
	each := make([]int, 3)
	for i, c := range all {
		for _, at := range c.in {
			if at.After(begin) && at.Before(stop) {
				times = append(times, at)
				each[min(i, 2)]++
			}
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	idle, last := time.Duration(0), begin
	over := 0
	for _, at := range append(times, stop) {
		idle = max(idle, at.Sub(last))
		if at.Sub(last) > 100*time.Millisecond {
			over++
		}
		last = at
	}
	fmt.Fprintf(os.Stdout, "every %v, %d kills: %d grants in %v (%d, %d, victims %d); longest idle %v, %d gaps over 100 ms\n",
		*every, kills, len(times), stop.Sub(begin).Round(time.Millisecond), each[0], each[1], each[2], idle.Round(time.Millisecond), over)
}

func crowd(n int) {
	if *dir != "" {
		*dir = filepath.Join(*dir, fmt.Sprint(os.Getpid(), "of", n))
	} else {
		*coll = fmt.Sprint("crowd", os.Getpid(), "of", n)
	}
	var all []*child
	for range n {
		all = append(all, start("loop"))
	}
	for _, c := range all {
		<-c.up
	}
	time.Sleep(5 * time.Second) // until all stand in line
	begin := time.Now()
	time.Sleep(*length)
	stop := time.Now()
	for _, c := range all {
		c.kill()
	}
	var waits []time.Duration
	var sum, squares float64
	for _, c := range all {
		grants, last := 0, begin
		for _, at := range append(c.in, stop) {
			if at.Before(begin) || at.After(stop) {
				continue
			}
			waits = append(waits, at.Sub(last))
			last, grants = at, grants+1
		}
		grants-- // the end
		sum, squares = sum+float64(grants), squares+float64(grants*grants)
	}
	slices.Sort(waits)
	median, longest := waits[len(waits)/2], waits[len(waits)-1]
	fmt.Fprintf(os.Stdout, "%3d: %.0f grants in %v; Jain's index %.3f; median wait %v, longest %v: %.1f of them\n",
		n, sum, stop.Sub(begin).Round(time.Millisecond), sum*sum/(float64(n)*squares), median.Round(time.Millisecond), longest.Round(time.Millisecond), float64(longest)/float64(median))
}
