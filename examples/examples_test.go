// Package examples tests the programs in its folders as what they are: each is built and run.
package examples

import (
	"bufio"
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/devmongo"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/fence"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
	"github.com/mongolock/mongolock/pathlock"
	"github.com/mongolock/mongolock/schedule"
)

var (
	names    = []string{"fence", "handoff", "leader", "lost", "nightly", "once", "outbox", "partitions", "paths", "permits", "service", "skip"}
	programs string // the folder that they are built into
	server   *mongo.Client
	locks    *mongolock.Client // of another process
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

// run runs the tests on a server of their own: the programs use databases of fixed names, which on a
// server that is in use may be somebody's.
func run(m *testing.M) (code int, err error) {
	if err := os.Unsetenv("MONGODB_URI"); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := devmongo.Start(ctx, "")
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	if err := os.Setenv("MONGODB_URI", s.URI()); err != nil {
		return 0, err
	}
	if programs, err = os.MkdirTemp("", "examples-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(programs)
	build := []string{"build", "-o", programs}
	for _, name := range names {
		build = append(build, "./"+name)
	}
	if out, err := exec.Command("go", build...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s: %w", out, err)
	}
	if server, err = mongo.Connect(options.Client().ApplyURI(s.URI())); err != nil {
		return 0, err
	}
	if locks, err = mongolock.New(server.Database("mongolock").Collection("locks"), mongolock.WithOwner("another process")); err != nil {
		return 0, err
	}
	defer locks.Close()
	return m.Run(), nil
}

// A process is an example that runs.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner // of standard output
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, name), args...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	return &process{t, cmd, bufio.NewScanner(out)}
}

// says waits for the next line.
func (p *process) says(want string) {
	p.t.Helper()
	require.True(p.t, p.lines.Scan(), "it ended; want %q", want)
	require.Contains(p.t, p.lines.Text(), want)
}

// ends waits for the end, before which no further line may come.
func (p *process) ends(code int) {
	p.t.Helper()
	rest := p.lines.Scan()
	require.False(p.t, rest, "it says %q", p.lines.Text())
	_ = p.cmd.Wait()
	require.Equal(p.t, code, p.cmd.ProcessState.ExitCode(), "exit code")
}

// interrupted ends it with Ctrl-C.
func (p *process) interrupted() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(os.Interrupt))
	p.ends(0)
}

// A user copies a main.go as it stands, so it may need nothing else of this repository.
func TestEachExampleIsOneShortFileThatCanBeCopied(t *testing.T) {
	files, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	short := 0
	for _, file := range files {
		if name := filepath.Dir(file); name == "migrate" { // a module of its own
			continue
		}
		short++
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.LessOrEqual(t, strings.Count(string(text), "\n"), 70, "lines of %s", file)
		sources, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*.go"))
		require.NoError(t, err)
		for _, other := range sources {
			assert.True(t, other == file || strings.HasSuffix(other, "_test.go"), "%s stands beside main.go", other)
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range f.Imports {
			assert.NotContains(t, i.Path.Value, "/examples/", file)
			assert.NotContains(t, i.Path.Value, "/internal/", file)
		}
	}
	assert.Equal(t, len(names)+1, short, "the examples below, and first")
}

func TestSkip(t *testing.T) {
	lease, err := locks.Acquire(t.Context(), "report", mongolock.Note("a test"))
	require.NoError(t, err)
	second := start(t, "skip")
	second.says("skipped: another process has it (a test)")
	second.ends(0)
	require.NoError(t, lease.Release())
	third := start(t, "skip")
	third.says("writing the report")
	third.ends(0)
}

// It is due at three o'clock, so an operator asks for a run.
func TestNightly(t *testing.T) {
	jobs, err := schedule.New(server.Database("mongolock").Collection("jobs"))
	require.NoError(t, err)
	first := start(t, "nightly")
	require.Eventually(t, func() bool { return jobs.RunNow(t.Context(), "nightly-report") == nil }, time.Minute, 20*time.Millisecond)
	first.interrupted() // long before it has looked what else is to be run
	second := start(t, "nightly")
	second.says("writing the report, attempt 1")
	require.Eventually(t, func() bool {
		state, err := jobs.Job(t.Context(), "nightly-report")
		return err == nil && len(state.Past) == 1 && state.Past[0].Outcome == schedule.Succeeded
	}, time.Minute, 20*time.Millisecond)
	second.interrupted()
}

func TestLeader(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	get := func(path string) string {
		answer, err := http.Get("http://" + address + path)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.Status + " " + string(text)
	}
	t.Setenv("ADDRESS", address)
	leads := start(t, "leader")
	leads.says("leads")
	assert.Equal(t, "200 OK ", get("/healthz"))
	assert.Equal(t, "200 OK true\n", get("/leader"))
	t.Setenv("ADDRESS", "127.0.0.1:0")
	waits := start(t, "leader")
	leads.interrupted()
	waits.says("leads")
	waits.interrupted()
}

// The webhook fails once. A message that was put back at once would come again within milliseconds.
func TestOutbox(t *testing.T) {
	var mu sync.Mutex
	var came []time.Time
	id := bson.NewObjectID()
	webhook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		assert.Contains(t, r.Header.Get("Idempotency-Key"), id.Hex())
		if came = append(came, time.Now()); len(came) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer webhook.Close()
	outbox := server.Database("shop").Collection("outbox")
	_, err := outbox.InsertOne(t.Context(), bson.M{"_id": id, "text": "order 17 was paid", "state": "new"})
	require.NoError(t, err)
	t.Setenv("WEBHOOK", webhook.URL)
	relay := start(t, "outbox")
	require.Eventually(t, func() bool {
		n, err := outbox.CountDocuments(t.Context(), bson.M{"state": "sent"})
		return err == nil && n == 1
	}, time.Minute, 20*time.Millisecond)
	relay.interrupted()
	require.Len(t, came, 2)
	assert.Greater(t, came[1].Sub(came[0]), 400*time.Millisecond, "between the attempts")
}

// Two processes share the partitions, and each customer's messages come in order.
func TestPartitions(t *testing.T) {
	messages := server.Database("shop").Collection("messages")
	insert := func(first int) {
		t.Helper()
		for i := range 64 {
			_, err := messages.InsertOne(t.Context(), bson.M{"customer": fmt.Sprint("c", i), "text": fmt.Sprint("number ", first), "partition": i, "state": "new"})
			require.NoError(t, err)
		}
	}
	sent := func(n int64) {
		t.Helper()
		require.Eventually(t, func() bool {
			got, err := messages.CountDocuments(t.Context(), bson.M{"state": "sent"})
			return err == nil && got == n
		}, time.Minute, 20*time.Millisecond)
	}
	insert(1)
	a := start(t, "partitions")
	sent(64)
	b := start(t, "partitions")
	require.Eventually(t, func() bool { // each has its share
		s, err := assign.Look(t.Context(), locks, "messages")
		has := make(map[string]int)
		for _, p := range s.Partitions {
			has[p.Worker]++
		}
		return err == nil && len(s.Workers) == 2 && has[s.Workers[0].ID] == 32 && has[s.Workers[1].ID] == 32
	}, time.Minute, 20*time.Millisecond)
	insert(2)
	sent(128)
	for i, p := range []*process{a, b} {
		require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
		lines := 0
		for ; p.lines.Scan(); lines++ {
			want := "number 2"
			if i == 0 && lines < 64 {
				want = "number 1"
			}
			assert.Contains(t, p.lines.Text(), want)
		}
		assert.Equal(t, []int{96, 32}[i], lines)
		require.NoError(t, p.cmd.Wait())
	}
}

func TestOnce(t *testing.T) {
	orders := server.Database("shop").Collection("orders")
	_, err := orders.InsertOne(t.Context(), bson.M{"state": "PAID"})
	require.NoError(t, err)
	var said []string
	a, b := start(t, "once"), start(t, "once")
	for _, p := range []*process{a, b} {
		for p.lines.Scan() {
			said = append(said, p.lines.Text())
		}
		p.ends(0)
	}
	assert.ElementsMatch(t, []string{"migrating, run 1", "ready", "ready"}, said)
	n, err := orders.CountDocuments(t.Context(), bson.M{"state": "paid"})
	require.NoError(t, err)
	assert.EqualValues(t, 1, n)
}

// A write with a token of the far future stands for the newer holder.
func TestFence(t *testing.T) {
	in := start(t, "fence")
	in.says("orders today: ")
	in.ends(0)
	totals := server.Database("shop").Collection("totals")
	_, err := fence.UpdateByID(t.Context(), totals, 1<<62, "today", bson.M{"$set": bson.M{"orders": 42}})
	require.NoError(t, err)
	late := start(t, "fence")
	late.says("refused: a newer holder has written")
	late.ends(1)
}

func TestPermits(t *testing.T) {
	var taken []*mongolock.Lease
	for range 3 {
		lease, err := locks.Acquire(t.Context(), "render/acme", mongolock.OneOf(3))
		require.NoError(t, err)
		taken = append(taken, lease)
	}
	fourth := start(t, "permits", "acme")
	require.Eventually(t, func() bool {
		s, err := locks.Inspect(t.Context(), "render/acme")
		return err == nil && len(s.Line) == 1
	}, time.Minute, 20*time.Millisecond, "it waits")
	other := start(t, "permits", "another", "tenant")
	other.says("rendering")
	other.ends(0)
	require.NoError(t, taken[1].Release())
	fourth.says("rendering")
	fourth.ends(0)
	require.NoError(t, taken[0].Release())
	require.NoError(t, taken[2].Release())
}

func TestPaths(t *testing.T) {
	storage, err := pathlock.OnMongo(server.Database("mongolock").Collection("paths"))
	require.NoError(t, err)
	files, err := pathlock.New(storage, "files")
	require.NoError(t, err)
	defer files.Close()
	reader, err := files.Hold(t.Context(), pathlock.Request{Path: "site/images/logo.png", Mode: pathlock.Shared})
	require.NoError(t, err)
	writer := start(t, "paths")
	writer.says("waiting: ")
	require.NoError(t, reader.Release())
	writer.says("replacing the images")
	writer.ends(0)
}

func TestLost(t *testing.T) {
	importer := start(t, "lost")
	importer.says("importing")
	_, err := locks.Break(t.Context(), "import", "the disk is full", 10*time.Second)
	require.NoError(t, err)
	importer.says("an operator has taken the lock away: ")
	assert.Regexp(t, `stopped at row [1-9]`, importer.lines.Text())
	importer.says("lease is lost: broken: the disk is full")
	importer.ends(1)
}

func TestHandoff(t *testing.T) {
	first := start(t, "handoff")
	require.True(t, first.lines.Scan())
	ticket := first.lines.Text()
	first.ends(0)
	_, err := locks.TryAcquire(t.Context(), "upload-17")
	require.ErrorIs(t, err, mongolock.ErrHeld, "between the two")
	start(t, "handoff", ticket).ends(0)
	lease, err := locks.TryAcquire(t.Context(), "upload-17")
	require.NoError(t, err, "afterwards")
	require.NoError(t, lease.Release())
	start(t, "handoff", ticket).ends(1)
}

// saysAll waits for lines that come in any order.
func (p *process) saysAll(want ...string) {
	p.t.Helper()
	var said []string
	for range want {
		require.True(p.t, p.lines.Scan(), "it ended after %q; want %q", said, want)
		said = append(said, p.lines.Text())
	}
	require.ElementsMatch(p.t, want, said)
}

// aService has a server's database to itself, with a message and a run that is asked for.
func aService(t *testing.T, on *mongo.Client) (*process, *mongolock.Client, *schedule.Scheduler) {
	t.Helper()
	db := on.Database("service")
	require.NoError(t, db.Drop(t.Context()))
	_, err := db.Collection("outbox").InsertOne(t.Context(), bson.M{"state": "new"})
	require.NoError(t, err)
	held, err := mongolock.New(db.Collection("locks"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	jobs, err := schedule.New(db.Collection("jobs"))
	require.NoError(t, err)
	p := start(t, "service")
	require.Eventually(t, func() bool { return jobs.RunNow(t.Context(), "report") == nil }, time.Minute, 20*time.Millisecond)
	p.saysAll(everyRole...)
	return p, held, jobs
}

var everyRole = []string{"billing", "mail", "message", "partition 0", "partition 1", "report"}

// A process that is stopped leaves nothing to a TTL, and one that is killed leaves all of it.
func TestService(t *testing.T) {
	first, held, jobs := aService(t, server)
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGTERM))
	first.ends(0)
	for s, err := range held.List(t.Context(), "") {
		require.NoError(t, err)
		assert.Empty(t, s.Holders, s.Key)
	}
	messages, err := doclock.New[bson.M](server.Database("service").Collection("outbox"))
	require.NoError(t, err)
	defer messages.Close()
	locked := func() (n int) {
		for _, err := range messages.List(t.Context()) {
			require.NoError(t, err)
			n++
		}
		return n
	}
	assert.Zero(t, locked(), "messages")
	state, err := jobs.Job(t.Context(), "report")
	require.NoError(t, err)
	require.Len(t, state.Runs, 1)
	assert.Equal(t, schedule.Stopped, state.Runs[0].Outcome, "it is to be repeated at once")

	second := start(t, "service")
	second.saysAll(everyRole...)
	assert.Equal(t, 1, locked(), "a lock would be seen")
	require.NoError(t, second.cmd.Process.Kill())
	second.ends(-1)
	third := start(t, "service")
	third.saysAll(everyRole...)
	require.NoError(t, third.cmd.Process.Signal(syscall.SIGTERM))
	third.ends(0)
}

// Kubernetes kills what has not ended after 30 s.
func TestServiceEndsWithinItsGracePeriodWithoutItsDatabase(t *testing.T) {
	uri := os.Getenv("MONGODB_URI")
	for name, goes := range map[string]func(*faultproxy.Proxy){"refused": (*faultproxy.Proxy).Cut, "silent": (*faultproxy.Proxy).Silence} {
		t.Run(name, func(t *testing.T) {
			proxy := faultproxy.New(t, uri)
			t.Setenv("MONGODB_URI", proxy.URI())
			p, _, _ := aService(t, server)
			goes(proxy)
			told := time.Now()
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
			killed := time.AfterFunc(30*time.Second, func() { _ = p.cmd.Process.Kill() })
			defer killed.Stop()
			p.ends(1)
			t.Logf("it ended after %s", time.Since(told).Round(100*time.Millisecond))
		})
	}
}
