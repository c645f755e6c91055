package webdavlock_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"golang.org/x/net/webdav"

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
