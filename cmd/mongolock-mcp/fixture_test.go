//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/pathlock"
)

// serverName is the name under which the test's own program is the server.
const serverName = "mongolock-mcp"

func TestMain(m *testing.M) {
	if os.Args[0] == serverName {
		os.Exit(execute(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// A program is the server, with a database of the test's own.
type program struct {
	t   *testing.T
	env []string
	dir string
}

func newProgram(t *testing.T) *program {
	t.Helper()
	t.Parallel()
	uri, db := testserver.URI(t), "mcp_"+strings.ToLower(rand.Text()[:10])
	database := testserver.Client(t).Database(db)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = database.Drop(ctx) // the server may be busy
	})
	return &program{t: t, dir: t.TempDir(), env: slices.Clip(append(os.Environ(), "MONGODB_URI="+uri, "MONGOLOCK_DB="+db))}
}

// breaks takes a path away, as a person does.
func (p *program) breaks(args []string, path string) {
	p.t.Helper()
	s, err := read(args, io.Discard)
	require.NoError(p.t, err)
	for _, v := range p.env {
		if uri, is := strings.CutPrefix(v, "MONGODB_URI="); is {
			s.uri = uri
		}
		if db, is := strings.CutPrefix(v, "MONGOLOCK_DB="); is {
			s.db = db
		}
	}
	tree, shut, err := s.open(p.t.Context())
	require.NoError(p.t, err)
	defer shut()
	found, err := tree.Affecting(p.t.Context(), path, pathlock.Zero)
	require.NoError(p.t, err)
	require.Len(p.t, found.Same, 1)
	require.NoError(p.t, tree.Release(p.t.Context(), found.Same[0].Token))
}

// An output is what a process writes, while it writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func TestWrongFlagsAreNamed(t *testing.T) {
	for want, args := range map[string][]string{
		"unexpected argument mcp":                      {"mcp"},
		"--ttl=1ms: must be from 100ms to a year":      {"--ttl", "1ms"},
		"--margin=20s: must be from 0 to half the TTL": {"--margin", "20s"},
		"--longest=1ms: must be from 1s to a year":     {"--longest", "1ms"},
		"--owner: has 300 bytes: at most 256":          {"--owner", strings.Repeat("x", 300)},
		"flag provided but not defined: -nonsense":     {"--nonsense"},
	} {
		_, err := read(args, io.Discard)
		assert.ErrorContains(t, err, want)
		assert.ErrorIs(t, err, errUsage)
	}
	s := &settings{uri: "mongodb://u:secret@127.0.0.1:99999/"}
	_, _, err := s.storage(t.Context())
	assert.ErrorIs(t, err, errUsage)
	assert.NotContains(t, err.Error(), "secret")
	_, _, err = (&settings{dir: "/proc/none"}).storage(t.Context())
	assert.ErrorContains(t, err, "--dir: ")
	_, _, err = (&settings{dir: t.TempDir()}).open(t.Context())
	assert.ErrorContains(t, err, "--tree: ")
	s.uri = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100"
	_, _, err = s.storage(t.Context())
	assert.ErrorIs(t, err, errUnreachable)
	assert.Equal(t, exitUsage, execute([]string{"--nonsense"}))
}

func TestAUserThatTheServerRefusesIsNoServerOutOfReach(t *testing.T) {
	server := testserver.Start(t, "auth=1", "roles")
	uri, err := url.Parse(server.URI)
	require.NoError(t, err)
	uri.User = url.UserPassword("root", "not the secret")
	_, _, err = (&settings{uri: uri.String()}).storage(t.Context())
	assert.ErrorContains(t, err, "refuses the user")
	assert.NotErrorIs(t, err, errUnreachable)
	assert.NotContains(t, err.Error(), "secret")
}
