//go:build devmongo_light

package servers

import (
	"context"
	"errors"
)

// errLeftOut is the reason of the kinds that bring a container library or a whole server with them.
// Without those a program with devmongo in it builds in seconds instead of minutes.
var errLeftOut = errors.New("left out of this build, by the tag devmongo_light; `make bin/devmongo` builds it")

func findDocker(ctx context.Context, s Config) (backend, error) {
	if s.Members > 0 || s.Shards > 0 || s.Clocks { // which the docker command starts
		return findContainers(ctx, s)
	}
	return nil, errLeftOut
}

func findFerretDB(context.Context, Config) (backend, error) { return nil, errLeftOut }
