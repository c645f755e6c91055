package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// An offer is a kind, and how to find out whether this machine has it.
type offer struct {
	kind Kind
	// find returns the backend, not started, or the reason why there is none.
	find func(ctx context.Context, s Config) (backend, error)
}

// preference is the order in which Start tries the kinds: the server that the environment names comes first,
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

// offersFor returns the preference, or the one kind that is named.
func offersFor(s Config) ([]offer, error) {
	all := preference()
	if s.Kind == "" {
		return all, nil
	}
	for _, o := range all {
		if o.kind == s.Kind {
			return []offer{o}, nil
		}
	}
	return nil, fmt.Errorf("devmongo: no such kind: %q", s.Kind)
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
		_, err := o.find(ctx, Config{})
		found = append(found, Finding{o.kind, err})
	}
	return found
}

// check refuses what no kind can do.
func (s Config) check() error {
	var wrong string
	switch {
	case s.Members < 0:
		wrong = fmt.Sprintf("%d members", s.Members)
	case s.Members > 7:
		wrong = fmt.Sprintf("%d members: a set has at most 7 that vote", s.Members)
	case s.Shards < 0:
		wrong = fmt.Sprintf("%d shards", s.Shards)
	case s.Members > 1 && s.Shards > 0:
		wrong = fmt.Sprintf("%d members and %d shards: a shard has one member", s.Members, s.Shards)
	case s.Auth && (s.Members > 1 || s.Shards > 0):
		wrong = "users with members or shards: users are for one server"
	case s.Links && s.Members < 2:
		wrong = "links without members: there is no member to be cut off from"
	case s.Image != "" && s.Kind != Docker:
		wrong = fmt.Sprintf("the image %q is for the kind docker", s.Image)
	default:
		return nil
	}
	return errors.New("devmongo: " + wrong)
}

// many says that more is asked for than one server with the machine's clock.
func (s Config) many() bool { return s.Members > 1 || s.Shards > 0 || s.Clocks }

// errNoSet is the answer of the kinds that are one server.
var errNoSet = fmt.Errorf("this kind cannot be started as a set, as a sharded cluster or with a clock of its own: %w", errors.ErrUnsupported)

var errNoAuth = errors.New("this kind cannot be started with users")

func findExternal(_ context.Context, s Config) (backend, error) {
	uri := os.Getenv(EnvURI)
	switch {
	case uri == "":
		return nil, errors.New("MONGODB_URI is not set")
	case s.Auth:
		return nil, errNoAuth
	case s.many():
		return nil, errNoSet
	}
	return external{uri}, nil
}

// external is a server that is not ours: it is used and otherwise left alone.
type external struct{ uri string }

func (e external) start(ctx context.Context) (string, error) {
	return e.uri, findPrimary(ctx, options.Client().ApplyURI(e.uri)) // it does not start now: its address says how long to look for it
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
