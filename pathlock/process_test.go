package pathlock_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/test/kit/disktest"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/pathlock"
)

const processes = 3

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "4") // the claims of a contract wait more than they compute
	testchild.Main(m, testchild.Roles{
		disktest.Role: disktest.Dies(openOnDisk),
		"works":       testchild.As(work),
	})
}

// A place says where a child has its tree.
type place struct {
	Dir      string // or
	DB, Coll string
}

func onMongo(at interface{ Where() (db, coll string) }) (p place) {
	p.DB, p.Coll = at.Where()
	return p
}

func (p place) open() (pathlock.Storage, error) {
	if p.Dir != "" {
		return pathlock.InDir(p.Dir)
	}
	conn, err := mongo.Connect(testserver.Dialling(os.Getenv("MONGODB_URI")))
	if err != nil {
		return nil, err
	}
	return pathlock.OnMongo(conn.Database(p.DB).Collection(p.Coll))
}

// work locks, refreshes and releases at random, in goroutines, until it is killed. It
// prints what it certainly held: from the answer to a grant until its time was over, or
// until it sent the release. All processes of a host share the clock of these moments.
func work(ctx context.Context, p place) error {
	storage, err := p.open()
	if err != nil {
		return err
	}
	tree, err := pathlock.New(storage, "tree")
	if err != nil {
		return err
	}
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	goroutines := 16
	if p.Dir == "" {
		goroutines = 8 // more would be refused most of the time
	}
	for range goroutines {
		go workAtRandom(tree, say)
	}
	<-ctx.Done()
	return nil
}

func workAtRandom(tree *pathlock.Tree, say func(string, ...any)) {
	ctx := context.Background()
	stamp := func(t time.Time) int64 { return t.Round(0).UnixNano() }
	var took time.Duration // the last answer: on a slow server a shorter lock would be over before its own
	for {
		h := held{lockable[rand.IntN(len(lockable))], modes[rand.IntN(2)], depths[rand.IntN(2)], ""}
		r := h.request()
		r.Timeouts = []time.Duration{4*took + time.Duration(100+rand.IntN(200))*time.Millisecond}
		sent := time.Now()
		l, err := tree.Lock(ctx, r)
		took = time.Since(sent)
		if err != nil {
			if !errors.Is(err, pathlock.ErrConflict) && !unanswered(err) {
				say("fault %v", err)
			}
			time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond) // real: at random, so that the processes meet in other ways each time
			continue
		}
		say("grant %s %s %s %s %d %d", l.Token, l.Path, l.Mode, l.Depth, stamp(time.Now()), stamp(sent.Add(l.Left)))
		for range rand.IntN(4) {
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // real: it holds the lock for a while
			sent := time.Now()
			if l, err = tree.Refresh(ctx, l.Token); err != nil {
				break
			}
			say("refresh %s %d", l.Token, stamp(sent.Add(l.Left)))
		}
		if err == nil && rand.IntN(4) > 0 { // otherwise it runs out
			say("release %s %d", l.Token, stamp(time.Now()))
			if err := tree.Release(ctx, l.Token); err != nil && !errors.Is(err, pathlock.ErrUnknownToken) && !unanswered(err) {
				say("fault %v", err)
			}
		}
	}
}

// unanswered reports whether a server that others starve had no answer within the time of a
// call.
func unanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || mongo.IsTimeout(err)
}

// A span is a lock, and the time for which it was certainly held.
type span struct {
	held
	from, until int64
}

// A ledger is what all processes printed.
type ledger struct {
	spans                      map[string]*span
	refreshes, releases, kills int
	faults                     []string
}

func (g *ledger) read(line string) {
	var word, token string
	var one, two int64
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return // a kill cut the line off
	}
	word, token = fields[0], fields[1]
	number := func(i int) (n int64) {
		if len(fields) > i && len(fields[i]) == 19 {
			_, _ = fmt.Sscan(fields[i], &n)
		}
		return n
	}
	switch word {
	case "fault":
		g.faults = append(g.faults, line)
	case "grant":
		if one, two = number(5), number(6); one == 0 || two == 0 {
			return
		}
		g.spans[token] = &span{held{fields[2], pathlock.Mode(fields[3]), pathlock.Depth(fields[4]), token}, one, two}
	case "refresh":
		g.refreshes++
		if s, until := g.spans[token], number(2); s != nil {
			s.until = max(s.until, until)
		}
	case "release":
		g.releases++
		if s, at := g.spans[token], number(2); s != nil && at > 0 {
			s.until = min(s.until, at)
		}
	}
}

// replay finds locks that conflict and were held at the same time.
func (g *ledger) replay() (conflicts []string, beside int) {
	var all []*span
	for _, s := range g.spans {
		if s.until > s.from {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *span) int { return int(a.from - b.from) })
	for i, one := range all {
		for _, two := range all[i+1:] {
			if two.from >= one.until {
				break
			}
			beside++
			if ruleConflict(one.held, two.held) {
				conflicts = append(conflicts, fmt.Sprintf("%v and %v for %v", one.held, two.held, time.Duration(min(one.until, two.until)-two.from)))
			}
		}
	}
	return conflicts, beside
}

// crowd runs processes on a place, and kills and replaces one after the other, until
// enough says so.
func crowd(t *testing.T, where place, enough func(*ledger) bool, env ...string) *ledger {
	t.Helper()
	pause := 100 * time.Millisecond // between two kills
	if where.Dir == "" {
		pause = min(pace.Of(1500*time.Millisecond), 6*time.Second) // its processes connect first
	}
	g := &ledger{spans: make(map[string]*span)}
	var mu sync.Mutex // protects g
	var readers sync.WaitGroup
	begin := func() *exec.Cmd {
		cmd := testchild.Command(t, "works", where, env...)
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		readers.Go(func() {
			defer stdin.Close()
			for lines := bufio.NewScanner(stdout); lines.Scan(); {
				mu.Lock()
				g.read(lines.Text())
				mu.Unlock()
			}
		})
		return cmd
	}
	var all [processes]*exec.Cmd
	for i := range all {
		all[i] = begin()
	}
	kill := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill()
	}
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return enough(g)
	}
	for end := time.Now().Add(pace.Of(3 * time.Minute)); !done() && time.Now().Before(end); g.kills++ {
		time.Sleep(pause + rand.N(pause)) // real: between two kills
		i := rand.IntN(processes)
		kill(all[i])
		old := all[i]
		all[i] = begin()
		t.Cleanup(func() { _ = old.Wait() })
	}
	for _, cmd := range all {
		kill(cmd)
	}
	readers.Wait()
	for _, cmd := range all {
		_ = cmd.Wait()
	}
	return g
}

// enoughToTell reports whether this much work would show a broken storage. The controls
// show one every 70 grants or so.
func enoughToTell(g *ledger) bool {
	if len(g.spans) < 300 || g.refreshes < 100 || g.releases < 100 || g.kills < 8 {
		return false
	}
	_, beside := g.replay()
	return beside >= 500
}

func noConflictAmong(t *testing.T, where place) {
	t.Helper()
	g := crowd(t, where, enoughToTell)
	conflicts, beside := g.replay()
	assert.Empty(t, conflicts, "held at the same time")
	assert.Empty(t, g.faults)
	assert.True(t, enoughToTell(g), "too little happened for this to show anything")
	t.Logf("%d grants, %d refreshes, %d releases, %d kills; %d pairs held at once, none in conflict", len(g.spans), g.refreshes, g.releases, g.kills, beside)
}

func TestProcessesThatAreKilledNeverHoldConflictingLocksOnMongo(t *testing.T) {
	noConflictAmong(t, onMongo(pathlock.NewPlaceOnMongo(t)))
}

func TestProcessesThatAreKilledNeverHoldConflictingLocksInADirectory(t *testing.T) {
	noConflictAmong(t, place{Dir: disktest.InMemory(t)})
}
