//go:build !devmongo_light

package servers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/mongodb"
)

// findDocker asks the daemon itself, because a docker program on PATH does not prove that one runs.
func findDocker(ctx context.Context, s Config) (backend, error) {
	if s.Members > 0 || s.Shards > 0 || s.Clocks {
		return findContainers(ctx, s)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	provider, err := testcontainers.ProviderDefault.GetProvider(testcontainers.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	if err := provider.Health(ctx); err != nil { // closes the provider, too
		return nil, err
	}
	return &container{auth: s.Auth, image: cmp.Or(s.Image, defaultImage)}, nil
}

// A container is one MongoDB in Docker, by testcontainers. It cannot be killed or restarted: Docker would give it another port,
// where clients would not find it. Members can.
type container struct {
	auth    bool
	image   string
	running *mongodb.MongoDBContainer
}

func (c *container) start(ctx context.Context) (string, error) {
	opts := []testcontainers.ContainerCustomizer{
		mongodb.WithReplicaSet("devmongo"),
		testcontainers.WithLogger(silent{}),
	}
	if c.auth {
		opts = append(opts, mongodb.WithUsername("root"), mongodb.WithPassword(rand.Text()))
	}
	var err error
	if c.running, err = mongodb.Run(ctx, c.image, opts...); err != nil {
		return "", errors.Join(err, c.stop())
	}
	uri, err := c.running.ConnectionString(ctx)
	if err == nil {
		uri, err = direct(uri)
	}
	if err == nil {
		err = awaitPrimary(ctx, uri)
	}
	if err != nil {
		return "", errors.Join(err, c.stop())
	}
	return uri, nil
}

// direct makes the driver use the address of the URI. The replica set names its member by an address
// inside Docker, which cannot be reached from outside on every system. A direct connection still has
// sessions, transactions and retryable writes.
func direct(uri string) (string, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return "", err
	}
	q := u.Query()
	q.Del("replicaSet")
	q.Set("directConnection", "true")
	u.RawQuery = q.Encode()
	return u.String(), nil
}

func (c *container) kill() error                   { return errors.ErrUnsupported }
func (c *container) restart(context.Context) error { return errors.ErrUnsupported }

func (c *container) stop() error {
	if c.running == nil {
		return nil
	}
	if err := testcontainers.TerminateContainer(c.running); err != nil {
		return fmt.Errorf("the container: %w", err)
	}
	return nil
}

// silent keeps testcontainers' progress off the terminal, which belongs to the command of exec.
type silent struct{}

var _ log.Logger = silent{}

func (silent) Printf(string, ...any) {}
