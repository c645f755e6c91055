package devmongo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// An offer is a kind, and how to find out whether this machine has it.
type offer struct {
	kind Kind
	// find returns the backend, not started, or the reason why there is none.
	find func(ctx context.Context, s settings) (backend, error)
}

// preference is the order in which Start tries the kinds: the server that somebody named comes first,
// then those that can show most.
func preference() []offer {
	return []offer{
		{External, findExternal},
		{Mongod, findMongod},
		{Secantus, findSecantus},
		{Docker, findDocker},
		{FerretDB, findFerretDB},
	}
}

// offersFor returns the preference, or the one kind that WithKind names.
func offersFor(s settings) ([]offer, error) {
	all := preference()
	if s.kind == "" {
		return all, nil
	}
	for _, o := range all {
		if o.kind == s.kind {
			return []offer{o}, nil
		}
	}
	return nil, fmt.Errorf("devmongo: WithKind: no such kind: %q", s.kind)
}

// A Finding reports whether this machine has a kind.
type Finding struct {
	Kind Kind
	Err  error // the reason why this machine lacks it, or nil
}

// Find reports for every kind, in the order of Start, whether this machine has it. It starts no server.
func Find(ctx context.Context) []Finding {
	var found []Finding
	for _, o := range preference() {
		_, err := o.find(ctx, settings{})
		found = append(found, Finding{o.kind, err})
	}
	return found
}

var errNoAuth = errors.New("this kind cannot be started with users")

func findExternal(_ context.Context, s settings) (backend, error) {
	uri := os.Getenv(EnvURI)
	switch {
	case uri == "":
		return nil, errors.New("MONGODB_URI is not set")
	case s.auth:
		return nil, errNoAuth
	}
	return external{uri}, nil
}

// external is a server that is not ours: it is used and otherwise left alone.
type external struct{ uri string }

func (e external) start(ctx context.Context) (string, error) {
	return e.uri, awaitPrimary(ctx, e.uri)
}
func (external) kill() error                   { return errors.ErrUnsupported }
func (external) restart(context.Context) error { return errors.ErrUnsupported }
func (external) stop() error                   { return nil }

// lookPath finds a program on PATH, or else in a folder of the user's cache.
func lookPath(program string, cached ...string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil || len(cached) == 0 {
		return path, err
	}
	cache, noCache := os.UserCacheDir()
	if noCache != nil {
		return "", err
	}
	return exec.LookPath(filepath.Join(append(append([]string{cache}, cached...), program)...))
}
