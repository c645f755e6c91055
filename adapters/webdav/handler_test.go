package webdavlock_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/webdav"

	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
	"github.com/mongolock/mongolock/pathlock"
)

// inMongo is the storage of a server on a MongoDB in memory.
func inMongo(t testing.TB) pathlock.Storage {
	t.Helper()
	storage, err := pathlock.OnMongo(memmongo.New().Client(t).Database("any").Collection("paths"))
	require.NoError(t, err)
	return storage
}

// A davError is the body of an answer 423, as RFC 4918 describes it.
type davError struct {
	XMLName   xml.Name `xml:"DAV: error"`
	Conflicts []string `xml:"DAV: no-conflicting-lock>href"`
	Needed    []string `xml:"DAV: lock-token-submitted>href"`
	More      int      `xml:"https://github.com/mongolock/mongolock more"`
}

// answered sends a request, and returns what its answer says.
func answered(t *testing.T, h http.Handler, method, target, body string, header ...string) (status int, said davError) {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	resp := w.Result()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/xml") && resp.StatusCode == http.StatusLocked {
		require.NoError(t, xml.Unmarshal(text, &said), "%s", text)
	}
	said.XMLName = xml.Name{}
	return resp.StatusCode, said
}

func TestAnAnswerLockedNamesEveryLockInTheWay(t *testing.T) {
	for name, storage := range map[string]func(testing.TB) pathlock.Storage{
		"in memory":  func(testing.TB) pathlock.Storage { return pathlock.InMemory() },
		"on MongoDB": inMongo, // where the last ones were granted a moment before
	} {
		t.Run(name, func(t *testing.T) {
			files := webdav.NewMemFS()
			require.NoError(t, files.Mkdir(t.Context(), "/docs", 0o755))
			h := newLocks(t, storage(t)).Handler(&webdav.Handler{Prefix: "/dav", FileSystem: files})
			want := []string{"/dav/docs/1", "/dav/docs/2%20&%203", "/dav/docs/4"}
			for _, path := range want {
				status, _ := answered(t, h, "LOCK", path, lockInfo, "Depth", "0")
				require.Equal(t, http.StatusCreated, status)
			}
			status, said := answered(t, h, "LOCK", "/dav/docs", lockInfo)
			assert.Equal(t, http.StatusLocked, status)
			assert.Equal(t, davError{Conflicts: want}, said)

			status, said = answered(t, h, "PUT", "/dav/docs/1", "text")
			assert.Equal(t, http.StatusLocked, status)
			assert.Equal(t, davError{Needed: want[:1]}, said)

			status, said = answered(t, h, "MOVE", "/dav/docs/5", "", "Destination", "http://example.com/dav/docs/4")
			assert.Equal(t, http.StatusLocked, status, "the second of its two paths")
			assert.Equal(t, davError{Needed: want[2:]}, said)
		})
	}
}

func TestAnAnswerLockedSaysHowManyLocksItDoesNotName(t *testing.T) {
	locks := newLocks(t, pathlock.InMemory())
	for i := range 1003 {
		_, err := locks.Create(time.Now(), details(fmt.Sprint("/docs/", i), true))
		require.NoError(t, err)
	}
	_, said := answered(t, locks.Handler(&webdav.Handler{FileSystem: webdav.NewMemFS()}), "LOCK", "/docs", lockInfo)
	assert.Len(t, said.Conflicts, 1000)
	assert.Equal(t, 3, said.More)
}

// Other answers are the handler's own, byte for byte.
func TestAllOtherAnswersAreThoseOfTheHandler(t *testing.T) {
	files := webdav.NewMemFS()
	locks := newLocks(t, pathlock.InMemory())
	plain, ours := &webdav.Handler{FileSystem: files, LockSystem: locks}, locks.Handler(&webdav.Handler{FileSystem: files})
	_, err := locks.Create(time.Now(), details("/locked", true))
	require.NoError(t, err)
	show := func(h http.Handler, method, path string, header ...string) string {
		body := ""
		if method == "PROPFIND" { // of all properties the handler answers in any order
			body = `<propfind xmlns="DAV:"><prop><resourcetype/></prop></propfind>`
		}
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return fmt.Sprint(w.Code, w.Result().Header, w.Body)
	}
	for _, c := range [][]string{
		{"GET", "/none"}, {"PUT", "/none/x"}, {"OPTIONS", "/"}, {"PROPFIND", "/"}, {"DELETE", "/none"}, {"LOCK", "/a"},
		{"UNLOCK", "/a", "Lock-Token", "<another>"}, {"PUT", "/locked", "If", "(<another>)"}, {"SEARCH", "/"},
	} {
		assert.Equal(t, show(plain, c[0], c[1], c[2:]...), show(ours, c[0], c[1], c[2:]...), "%v", c)
	}
}
