package webdavlock_test

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"golang.org/x/net/webdav"

	"github.com/mongolock/mongolock"
	webdavlock "github.com/mongolock/mongolock/adapters/webdav"
	"github.com/mongolock/mongolock/pathlock"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

const lockInfo = `<?xml version="1.0"?><D:lockinfo xmlns:D="DAV:">
<D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype>
<D:owner>Ada</D:owner></D:lockinfo>`

func send(method, url, body string, header ...string) *http.Response {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	check(err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	check(err)
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp
}

// Two servers share files and locks. With pathlock.OnMongo in the place of InMemory they
// may be two processes.
func ExampleNew() {
	storage, files := pathlock.InMemory(), webdav.NewMemFS()
	var servers []*httptest.Server
	for range 2 {
		locks, err := webdavlock.New(storage, "files")
		check(err)
		defer locks.Close()
		s := httptest.NewServer(locks.Handler(&webdav.Handler{FileSystem: files}))
		defer s.Close()
		servers = append(servers, s)
	}
	one, two := servers[0].URL, servers[1].URL

	locked := send("LOCK", one+"/plan.txt", lockInfo, "Depth", "0", "Timeout", "Second-600")
	token := locked.Header.Get("Lock-Token")
	fmt.Println(locked.Status)
	fmt.Println(send("PUT", two+"/plan.txt", "not mine").Status)
	fmt.Println(send("PUT", two+"/plan.txt", "mine", "If", "("+token+")").Status)
	fmt.Println(send("UNLOCK", two+"/plan.txt", "", "Lock-Token", token).Status)
	fmt.Println(send("PUT", one+"/plan.txt", "anybody's").Status)
	// Output:
	// 201 Created
	// 423 Locked
	// 201 Created
	// 204 No Content
	// 201 Created
}

// Names that differ only in case are one file here.
func ExampleWithAlias() {
	locks, err := webdavlock.New(pathlock.InMemory(), "files", webdavlock.WithAlias(func(name string) (string, error) {
		return strings.ToLower(name), nil
	}))
	check(err)
	defer locks.Close()

	_, err = locks.Create(time.Now(), webdav.LockDetails{Root: "/Plan.txt", Duration: time.Hour, OwnerXML: "Ada", ZeroDepth: true})
	fmt.Println(err)
	_, err = locks.Create(time.Now(), webdav.LockDetails{Root: "/PLAN.TXT", Duration: time.Hour, OwnerXML: "Bob", ZeroDepth: true})
	fmt.Println(err)
	// Output:
	// <nil>
	// webdav: locked
}

// A client may ask that a file still be the one it knows, besides showing its token.
func ExampleWithETag() {
	files := webdav.NewMemFS()
	locks, err := webdavlock.New(pathlock.InMemory(), "files", webdavlock.WithETag(webdavlock.ETagOf(files)))
	check(err)
	defer locks.Close()
	s := httptest.NewServer(locks.Handler(&webdav.Handler{FileSystem: files}))
	defer s.Close()

	token := send("LOCK", s.URL+"/plan.txt", lockInfo, "Depth", "0").Header.Get("Lock-Token")
	fmt.Println(send("PUT", s.URL+"/plan.txt", "new", "If", "("+token+` ["that of another day"])`).Status)
	// Output: 412 Precondition Failed
}

// A request that shows no token takes a lock for as long as it lasts. Here is one that hangs.
func ExampleWithOwner() {
	storage := pathlock.InMemory()
	locks, err := webdavlock.New(storage, "files", webdavlock.WithOwner("host-7"))
	check(err)
	defer locks.Close()
	_, err = locks.Create(time.Now(), webdav.LockDetails{Root: "/plan.txt", Duration: -1, ZeroDepth: true}) // as the handler does
	check(err)

	tree, err := pathlock.New(storage, "files")
	check(err)
	defer tree.Close()
	all, err := tree.Locks(context.Background())
	check(err)
	fmt.Printf("%s by %s\n", all[0].Path, all[0].Owner)
	// Output: /plan.txt by host-7
}

// With slog.DiscardHandler nothing is logged.
func ExampleWithLogger() {
	locks, err := webdavlock.New(pathlock.InMemory(), "files", webdavlock.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	fmt.Println(locks.Close())
	// Output: <nil>
}

// The keys are those of the tree: its name and the path.
func ExampleWithObserver() {
	seen := make(keys, 8)
	locks, err := webdavlock.New(pathlock.InMemory(), "files", webdavlock.WithObserver(seen))
	check(err)
	defer locks.Close()
	_, err = locks.Create(time.Now(), webdav.LockDetails{Root: "/docs", Duration: time.Hour})
	check(err)
	fmt.Println(<-seen)
	// Output: files:/docs
}

type keys chan string

func (k keys) Begin(ctx context.Context, of mongolock.Operation) (context.Context, func(mongolock.Outcome)) {
	k <- of.Key
	return ctx, func(mongolock.Outcome) {}
}

func ExampleETagOf() {
	files := webdav.NewMemFS()
	etag := webdavlock.ETagOf(files)
	none, err := etag(context.Background(), "/nothing")
	fmt.Printf("%q %v\n", none, err)
	check(files.Mkdir(context.Background(), "/docs", 0o755))
	one, err := etag(context.Background(), "/docs")
	fmt.Println(strings.HasPrefix(one, `"`), err)
	// Output:
	// "" <nil>
	// true <nil>
}

// The answer to a request that is refused names the locks in the way.
func ExampleLockSystem_Handler() {
	locks, err := webdavlock.New(pathlock.InMemory(), "files")
	check(err)
	defer locks.Close()
	s := httptest.NewServer(locks.Handler(&webdav.Handler{FileSystem: webdav.NewMemFS()}))
	defer s.Close()

	send("LOCK", s.URL+"/plan.txt", lockInfo, "Depth", "0")
	r, err := http.NewRequest("PUT", s.URL+"/plan.txt", strings.NewReader("not mine"))
	check(err)
	resp, err := http.DefaultClient.Do(r)
	check(err)
	body, err := io.ReadAll(resp.Body)
	check(err)
	fmt.Println(resp.Status)
	fmt.Println(strings.TrimPrefix(string(body), xml.Header))
	// Output:
	// 423 Locked
	// <D:error xmlns:D="DAV:"><D:lock-token-submitted><D:href>/plan.txt</D:href></D:lock-token-submitted></D:error>
}

// The handler calls the rest; so may you.
func ExampleLockSystem_Confirm() {
	locks, err := webdavlock.New(pathlock.InMemory(), "files")
	check(err)
	defer locks.Close()
	token, err := locks.Create(time.Now(), webdav.LockDetails{Root: "/docs", Duration: time.Hour})
	check(err)

	_, err = locks.Confirm(time.Now(), "/docs/plan.txt", "", webdav.Condition{Token: "another"})
	fmt.Println(err)
	release, err := locks.Confirm(time.Now(), "/docs/plan.txt", "", webdav.Condition{Token: token})
	fmt.Println(err)
	fmt.Println(locks.Unlock(time.Now(), token)) // not under a write
	release()
	fmt.Println(locks.Unlock(time.Now(), token))
	// Output:
	// webdav: confirmation failed
	// <nil>
	// webdav: locked
	// <nil>
}

func ExampleLockSystem_Create() {
	locks, err := webdavlock.New(pathlock.InMemory(), "files")
	check(err)
	defer locks.Close()
	_, err = locks.Create(time.Now(), webdav.LockDetails{Root: "/docs", Duration: time.Hour})
	fmt.Println(err)
	_, err = locks.Create(time.Now(), webdav.LockDetails{Root: "/docs/plan.txt", Duration: time.Hour, ZeroDepth: true})
	fmt.Println(err)
	// Output:
	// <nil>
	// webdav: locked
}

func ExampleLockSystem_Refresh() {
	locks, err := webdavlock.New(pathlock.InMemory(), "files")
	check(err)
	defer locks.Close()
	token, err := locks.Create(time.Now(), webdav.LockDetails{Root: "/docs", Duration: time.Minute})
	check(err)
	details, err := locks.Refresh(time.Now(), token, time.Hour)
	fmt.Println(details.Root, details.Duration, err)
	_, err = locks.Refresh(time.Now(), "another", time.Hour)
	fmt.Println(err)
	// Output:
	// /docs 1h0m0s <nil>
	// webdav: no such lock
}

func ExampleLockSystem_Unlock() {
	locks, err := webdavlock.New(pathlock.InMemory(), "files")
	check(err)
	defer locks.Close()
	token, err := locks.Create(time.Now(), webdav.LockDetails{Root: "/docs", Duration: time.Minute})
	check(err)
	fmt.Println(locks.Unlock(time.Now(), token))
	fmt.Println(locks.Unlock(time.Now(), token))
	// Output:
	// <nil>
	// webdav: no such lock
}

func ExampleLockSystem_Close() {
	storage := pathlock.InMemory()
	locks, err := webdavlock.New(storage, "files")
	check(err)
	token, err := locks.Create(time.Now(), webdav.LockDetails{Root: "/docs", Duration: time.Hour})
	check(err)
	check(locks.Close())

	// After a restart the locks are as they were.
	locks, err = webdavlock.New(storage, "files")
	check(err)
	defer locks.Close()
	fmt.Println(locks.Unlock(time.Now(), token))
	// Output: <nil>
}
