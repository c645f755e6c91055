package servers

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheServerOfMongoDBURIComesFirstAndTheEmbeddedOneLast(t *testing.T) {
	var kinds []Kind
	for _, f := range Find(t.Context()) {
		kinds = append(kinds, f.Kind)
	}
	if want := []Kind{External, Mongod, Secantus, Docker, FerretDB}; !slices.Equal(kinds, want) {
		t.Errorf("%v, not %v", kinds, want)
	}
}

func TestServersAreFoundOnPathAndSecantusInTheCacheToo(t *testing.T) {
	for name, place := range map[string]struct {
		path, cache []string // programs there
		want        []Kind
	}{
		"nothing":       {},
		"mongod":        {path: []string{"mongod"}, want: []Kind{Mongod}},
		"both on path":  {path: []string{"secantusd-rs", "mongod"}, want: []Kind{Mongod, Secantus}},
		"in the cache":  {cache: []string{"secantusd-rs"}, want: []Kind{Secantus}},
		"mongod cached": {cache: []string{"mongod"}},
	} {
		t.Run(name, func(t *testing.T) {
			path, home := t.TempDir(), t.TempDir()
			t.Setenv("PATH", path)
			t.Setenv("HOME", home)
			t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
			t.Setenv(EnvURI, "")
			cache, err := os.UserCacheDir()
			require.NoError(t, err)
			putPrograms(t, path, place.path)
			putPrograms(t, filepath.Join(cache, "mongolock", "secantus", "bin"), place.cache)

			var found []Kind
			for _, o := range preference() {
				if o.kind == Docker || o.kind == FerretDB {
					continue // not found as files
				}
				if _, err := o.find(t.Context(), Config{}); err == nil {
					found = append(found, o.kind)
				}
			}
			if !slices.Equal(found, place.want) {
				t.Errorf("found %v, want %v", found, place.want)
			}
		})
	}
}

func putPrograms(t *testing.T, dir string, names []string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o700))
	for _, name := range names {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho broken\nexit 3\n"), 0o700))
	}
}

func TestTheNextKindIsTriedWithAWarningIfAServerFailsToStart(t *testing.T) {
	dir := t.TempDir()
	putPrograms(t, dir, []string{"mongod"})
	t.Setenv("PATH", dir)
	var log bytes.Buffer
	server, err := startFirst(t.Context(), []offer{{Mongod, findMongod}, {FerretDB, findFerretDB}},
		Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	defer server.Stop()
	if server.Kind() != FerretDB {
		t.Error(server.Kind())
	}
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "exit status 3") {
		t.Errorf("the log does not show the reason: %s", log.String())
	}
}

func TestANamedServerThatFailsIsNotReplacedByAnother(t *testing.T) {
	dir := t.TempDir()
	putPrograms(t, dir, []string{"mongod"})
	t.Setenv("PATH", dir)
	if _, err := Start(t.Context(), Config{Kind: Mongod}); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("the error lacks the program's last output: %v", err)
	}
	if _, err := Start(t.Context(), Config{Kind: "oracle"}); err == nil || !strings.Contains(err.Error(), `"oracle"`) {
		t.Errorf("the error does not name the unknown kind: %v", err)
	}
	t.Setenv(EnvURI, "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100")
	if server, err := Start(t.Context(), Config{}); err == nil {
		t.Errorf("started %s in place of the server that cannot be reached", server.Kind())
	}
	t.Setenv(EnvURI, "mongodb//oops")
	if server, err := Start(t.Context(), Config{}); err == nil {
		t.Errorf("started %s in place of the server whose address is invalid", server.Kind())
	}
}

func TestACancelledStartLeavesNoServerBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, kind := range []Kind{FerretDB, Secantus} {
		if server, err := Start(ctx, Config{Kind: kind}); err == nil {
			server.Stop()
			t.Errorf("%s started", kind)
		} else if !errors.Is(err, context.Canceled) && kind == FerretDB {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
