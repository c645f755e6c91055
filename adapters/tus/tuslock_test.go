package tuslock_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"
	"golang.org/x/exp/slog"

	"github.com/mongolock/mongolock"
	tuslock "github.com/mongolock/mongolock/adapters/tus"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/mongolocktest"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// newHost makes a host with a client of its own.
func newHost(t *testing.T, s store.Store) *tuslock.Locker {
	t.Helper()
	c := lab.Client(t, s)
	l, err := tuslock.New(c)
	require.NoError(t, err)
	return l
}

func newLock(t *testing.T, l *tuslock.Locker, id string) handler.Lock {
	t.Helper()
	k, err := l.NewLock(id)
	require.NoError(t, err)
	return k
}

func never() { panic("asked to unlock") }

func TestAnotherRequestAsksTheFirstToUnlock(t *testing.T) {
	for name, hosts := range map[string]int{"on the same host": 1, "on another host": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				all := []*tuslock.Locker{newHost(t, s), newHost(t, s)}
				first, second := newLock(t, all[0], "17"), newLock(t, all[hosts-1], "17")
				asked := make(chan struct{})
				require.NoError(t, first.Lock(t.Context(), func() { close(asked) }))
				other := newLock(t, all[1], "18")
				require.NoError(t, other.Lock(t.Context(), never))
				go func() {
					<-asked
					_ = first.Unlock()
				}()
				began := time.Now()
				require.NoError(t, second.Lock(t.Context(), never))
				assert.Less(t, time.Since(began), time.Second)
				require.NoError(t, second.Unlock())
				require.NoError(t, other.Unlock())
			})
		})
	}
}

func TestAHolderThatDoesNotUnlockIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		asked := 0
		require.NoError(t, newLock(t, newHost(t, s), "17").Lock(t.Context(), func() { asked++ }))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err := newLock(t, newHost(t, s), "17").Lock(ctx, never)
		require.ErrorIs(t, err, handler.ErrLockTimeout)
		require.ErrorIs(t, err, mongolock.ErrHeld)
		assert.Equal(t, 1, asked)
	})
}

func TestALeaseThatIsLostAsksForUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		l, err := tuslock.New(locks)
		require.NoError(t, err)
		asked := make(chan struct{})
		k := newLock(t, l, "17")
		require.NoError(t, k.Lock(t.Context(), func() { close(asked) }))
		locks.Lose("upload:17")
		<-asked
		require.ErrorIs(t, k.Unlock(), mongolock.ErrLost)
	})
}

func TestAClosedClientAsksForUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := mongolock.NewWithStore(memstore.New())
		require.NoError(t, err)
		l, err := tuslock.New(c)
		require.NoError(t, err)
		asked := make(chan struct{})
		require.NoError(t, newLock(t, l, "17").Lock(t.Context(), func() { close(asked) }))
		unlocked := newLock(t, l, "18")
		require.NoError(t, unlocked.Lock(t.Context(), never))
		require.NoError(t, unlocked.Unlock())
		require.NoError(t, c.Close())
		<-asked
	})
}

func TestAStoreThatFailsIsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := mongolocktest.New(t)
		l, err := tuslock.New(locks)
		require.NoError(t, err)
		down := errors.New("no route to host")
		locks.Fail(down)
		k := newLock(t, l, "17")
		err = k.Lock(t.Context(), never)
		require.ErrorIs(t, err, down)
		require.NotErrorIs(t, err, handler.ErrLockTimeout)
		require.EqualError(t, k.Unlock(), "tuslock: Unlock of a lock that is not locked")
		for want, opt := range map[string]mongolock.AcquireOption{"Shared": mongolock.Shared(), "OneOf": mongolock.OneOf(2), "TTL(1ns)": mongolock.TTL(1)} {
			_, err := tuslock.New(locks, opt)
			require.ErrorContains(t, err, "tuslock: New: ")
			require.ErrorContains(t, err, want)
		}
		_, err = tuslock.New(nil)
		require.EqualError(t, err, "tuslock: New: the locker is nil")
	})
}

// A client loses its connection in the middle of an upload. Its second request, to another host,
// goes on where the first has come, though the first still waits for the rest. (The race detector
// finds a race here, in tusd: it writes a request's body while requestUnlock reads it.)
func TestAnUploadGoesOnOnAnotherHost(t *testing.T) {
	dir, s := t.TempDir(), memstore.New()
	uploads := filestore.New(dir)
	serve := func() *httptest.Server {
		composer := handler.NewStoreComposer()
		uploads.UseIn(composer)
		newHost(t, s).UseIn(composer)
		h, err := handler.NewHandler(handler.Config{StoreComposer: composer, BasePath: "/files/", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		require.NoError(t, err)
		server := httptest.NewServer(http.StripPrefix("/files/", h))
		t.Cleanup(server.Close)
		return server
	}
	a, b := serve(), serve()
	do := func(method, url string, body io.Reader, header ...string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, url, body)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Tus-Resumable", "1.0.0")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return nil, err
		}
		return res, res.Body.Close()
	}
	send := func(method, url string, body io.Reader, header ...string) *http.Response {
		res, err := do(method, url, body, header...)
		require.NoError(t, err)
		return res
	}
	created := send(http.MethodPost, a.URL+"/files/", nil, "Upload-Length", "10")
	require.Equal(t, http.StatusCreated, created.StatusCode)
	_, id, _ := strings.Cut(created.Header.Get("Location"), "/files/")
	path := "/files/" + id
	octets := []string{"Content-Type", "application/offset+octet-stream", "Upload-Offset"}

	body, hangs := io.Pipe()
	first := make(chan int)
	go func() {
		res, err := do(http.MethodPatch, a.URL+path, body, append(octets, "0")...)
		if assert.NoError(t, err) {
			first <- res.StatusCode
		}
		close(first)
	}()
	_, err := hangs.Write([]byte("hello")) // and then nothing
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		file, err := os.Stat(filepath.Join(dir, id))
		return err == nil && file.Size() == 5
	}, 10*time.Second, time.Millisecond)

	offset := send(http.MethodHead, b.URL+path, nil).Header.Get("Upload-Offset")
	assert.Equal(t, "5", offset)
	rest := send(http.MethodPatch, b.URL+path, strings.NewReader("world"), append(octets, offset)...)
	assert.Equal(t, http.StatusNoContent, rest.StatusCode)
	assert.Equal(t, "10", rest.Header.Get("Upload-Offset"))
	require.NoError(t, hangs.Close())
	assert.Equal(t, http.StatusBadRequest, <-first, "it was interrupted")
}
