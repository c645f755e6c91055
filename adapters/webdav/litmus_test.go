package webdavlock_test

import (
	"context"
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/net/webdav"

	webdavlock "github.com/mongolock/mongolock/adapters/webdav"
	"github.com/mongolock/mongolock/internal/test/kit/testchild"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/pathlock"
)

// litmus runs the lock tests of that WebDAV client against a server, and returns the
// result of each. It skips tests that depend on one that failed.
func litmus(t *testing.T, server string) map[string]string {
	t.Helper()
	program, err := exec.LookPath("litmus")
	switch required := strings.Split(os.Getenv("MONGOLOCK_REQUIRE"), ","); {
	case err == nil:
	case slices.Contains(required, "litmus"):
		t.Fatalf("MONGOLOCK_REQUIRE lists litmus: %v", err)
	default:
		t.Skip("needs litmus, a WebDAV client: Debian has it")
	}
	cmd := exec.CommandContext(t.Context(), program, strings.TrimSuffix(server, "/")+"/")
	cmd.Env = append(os.Environ(), "TESTS=locks")
	cmd.Dir = t.TempDir() // it writes its log into its working directory
	out, _ := cmd.CombinedOutput()
	results := make(map[string]string)
	// It writes each test's line when the test begins, and again when it has ended.
	lines := strings.ReplaceAll(string(out), "\r", "\n")
	for _, m := range regexp.MustCompile(`(?m)^ *(\d+\. \w+)\.* (pass|FAIL|WARNING|SKIPPED)`).FindAllStringSubmatch(lines, -1) {
		if m[2] == "WARNING" { // it passed
			m[2] = "pass"
		}
		results[m[1]] = m[2]
	}
	t.Logf("%s", out)
	return results
}

// noneWorse compares the results with those of x/net's own lock system on the same kind of
// files.
func noneWorse(t *testing.T, files webdav.FileSystem, results map[string]string) {
	t.Helper()
	reference := httptest.NewServer(&webdav.Handler{FileSystem: files, LockSystem: webdav.NewMemLS()})
	defer reference.Close()
	theirs := litmus(t, reference.URL)
	passed := 0
	for name, result := range theirs {
		if result != "pass" {
			continue
		}
		passed++
		assert.Equal(t, "pass", results[name], "%s, which passes on x/net's own locks", name)
	}
	assert.GreaterOrEqual(t, passed, 28, "on x/net's own locks so few tests pass: was that litmus?") // 32 when this was written
}

// count returns how many tests passed, and how many ran.
func count(results map[string]string) (passed, of int) {
	for _, result := range results {
		switch result {
		case "pass":
			passed++
			of++
		case "FAIL":
			of++
		}
	}
	return passed, of
}

// allButShared fails the test for each test of litmus that failed, but for the one of
// shared locks, which the handler itself refuses.
func allButShared(t *testing.T, results map[string]string) {
	t.Helper()
	for name, result := range results {
		if result == "FAIL" && !strings.Contains(name, "lock_shared") {
			t.Errorf("%s failed", name)
		}
	}
	passed, of := count(results)
	t.Logf("%d of %d passed", passed, of)
}

func TestLitmusPassesTheSameTestsAsOnXNetsOwnLocks(t *testing.T) {
	files := webdav.NewMemFS()
	locks := newLocks(t, pathlock.InMemory(), webdavlock.WithETag(webdavlock.ETagOf(files)))
	server := httptest.NewServer(&webdav.Handler{FileSystem: files, LockSystem: locks})
	defer server.Close()
	results := litmus(t, server.URL)
	noneWorse(t, webdav.NewMemFS(), results)
	allButShared(t, results) // x/net's own fails one, because it does not check entity tags
}

// onDisk is a directory whose files take properties and forget them: litmus only checks who
// may set them.
type onDisk struct{ webdav.Dir }

func (d onDisk) OpenFile(ctx context.Context, name string, flag int, perm os.FileMode) (webdav.File, error) {
	file, err := d.Dir.OpenFile(ctx, name, flag, perm)
	if err != nil {
		return nil, err
	}
	return forgetful{file}, nil
}

type forgetful struct{ webdav.File }

func (forgetful) DeadProps() (map[xml.Name]webdav.Property, error) { return nil, nil }

func (forgetful) Patch(patches []webdav.Proppatch) ([]webdav.Propstat, error) {
	all := webdav.Propstat{Status: http.StatusOK}
	for _, p := range patches {
		for _, prop := range p.Props {
			all.Props = append(all.Props, webdav.Property{XMLName: prop.XMLName})
		}
	}
	return []webdav.Propstat{all}, nil
}

func TestMain(m *testing.M) {
	testchild.Main(m, testchild.Roles{"serves": testchild.As(serve)})
}

// A place says where a server has its files and its locks.
type place struct {
	Files, Locks string // directories
	DB, Coll     string // in the place of Locks
}

// serve runs a server until it is killed or its parent ends. It prints its address.
func serve(ctx context.Context, p place) error {
	files := onDisk{webdav.Dir(p.Files)}
	storage, err := p.storage()
	if err != nil {
		return err
	}
	locks, err := webdavlock.New(storage, "files", webdavlock.WithETag(webdavlock.ETagOf(files)))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	_ = http.Serve(listener, locks.Handler(&webdav.Handler{FileSystem: files}))
	return nil
}

func (p place) storage() (pathlock.Storage, error) {
	if p.Locks != "" {
		return pathlock.InDir(p.Locks)
	}
	conn, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")))
	if err != nil {
		return nil, err
	}
	return pathlock.OnMongo(conn.Database(p.DB).Collection(p.Coll))
}

// A server is a child process that serves files.
type server struct {
	*testchild.Process
	*httputil.ReverseProxy
}

func start(t *testing.T, at place) *server {
	t.Helper()
	child := testchild.Start(t, "serves", at)
	where, err := url.Parse(child.Says())
	require.NoError(t, err)
	return &server{child, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(where)
		r.Out.Host = r.In.Host // If headers contain it
	}}}
}

// A balancer passes requests to two servers in turn. After each restartEvery requests it
// kills one of them and starts another.
type balancer struct {
	t  *testing.T
	at place

	mu       sync.Mutex // protects the rest
	servers  []*server
	requests int
	restarts int
}

const restartEvery = 11

func (f *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock() // litmus sends one request at a time
	i := f.requests % len(f.servers)
	if f.requests++; f.requests%restartEvery == 0 {
		f.servers[i].Kill()
		f.servers[i] = start(f.t, f.at)
		f.restarts++
	}
	f.servers[i].ServeHTTP(w, r)
}

func litmusOnTwoServers(t *testing.T, at place) {
	t.Helper()
	at.Files = t.TempDir()
	f := &balancer{t: t, at: at, servers: []*server{start(t, at), start(t, at)}}
	front := httptest.NewServer(f)
	defer front.Close()
	results := litmus(t, front.URL)
	noneWorse(t, onDisk{webdav.Dir(t.TempDir())}, results)
	allButShared(t, results)
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.GreaterOrEqual(t, f.restarts, 2, "too few restarts for the test to show anything")
	assert.GreaterOrEqual(t, f.requests, 50, "too few requests for the test to show anything")
	t.Logf("%d requests to two servers in turn, %d times one was killed", f.requests, f.restarts)
}

func TestLitmusPassesOnTwoServersWithOneDatabaseAndKills(t *testing.T) {
	conn, err := mongo.Connect(options.Client().ApplyURI(testserver.URI(t)))
	require.NoError(t, err)
	coll := conn.Database("mongolock_test").Collection("webdav_" + rand.Text()[:10])
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = coll.Drop(ctx)
		_ = conn.Disconnect(ctx)
	})
	litmusOnTwoServers(t, place{DB: coll.Database().Name(), Coll: coll.Name()})
}

func TestLitmusPassesOnTwoServersWithOneDirectoryAndKills(t *testing.T) {
	litmusOnTwoServers(t, place{Locks: t.TempDir()})
}

// The control: two servers with separate locks fail tests that one server passes.
func TestControlLitmusNoticesServersThatShareNoLocks(t *testing.T) {
	files := webdav.NewMemFS()
	var turn int
	servers := []http.Handler{
		&webdav.Handler{FileSystem: files, LockSystem: newLocks(t, pathlock.InMemory())},
		&webdav.Handler{FileSystem: files, LockSystem: newLocks(t, pathlock.InMemory())},
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn++
		servers[turn%2].ServeHTTP(w, r)
	}))
	defer front.Close()
	passed, _ := count(litmus(t, front.URL))
	assert.LessOrEqual(t, passed, 25, "so many tests pass on servers that do not know each other's locks")
}
