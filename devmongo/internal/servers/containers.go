package servers

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strings"
	"time"
)

const defaultImage = "mongo:8"

// docker runs the docker command and returns what it prints.
func docker(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(failed.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// findContainers returns a backend of containers that the docker command starts, one for each member. Each
// has an address of its own in a network of ours, which a Linux machine reaches from outside.
func findContainers(ctx context.Context, s Config) (backend, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	switch {
	case runtime.GOOS != "linux":
		return nil, fmt.Errorf("only on Linux are containers reached at addresses of their own: %w", errors.ErrUnsupported)
	case s.Auth:
		return nil, errNoAuth
	case s.Port != 0:
		return nil, fmt.Errorf("containers have addresses of their own, without a port: %w", errors.ErrUnsupported)
	}
	if _, err := docker(ctx, "version", "--format", "{{.Server.Version}}"); err != nil { // asks the daemon
		return nil, err
	}
	return &containers{Config: s, image: cmp.Or(s.Image, defaultImage)}, nil
}

// dockerHas returns what Docker adds to the capabilities of its kind.
func dockerHas(ctx context.Context, s Config) (has []Capability) {
	if s.Members == 0 && s.Shards == 0 && !s.Clocks {
		return nil // testcontainers' server
	}
	has = append(has, Set, Process, Crash)
	if _, err := libraryIn(ctx, cmp.Or(s.Image, defaultImage)); err == nil {
		has = append(has, Clocks)
	}
	return has
}

// libraryIn returns the path of libfaketime inside an image.
func libraryIn(ctx context.Context, image string) (string, error) {
	found, err := docker(ctx, "run", "--rm", "--entrypoint", "sh", image, "-c", "ls "+strings.Join(faketimePlaces, " ")+" 2>/dev/null; true")
	if err != nil {
		return "", err
	}
	if first, _, _ := strings.Cut(found, "\n"); first != "" {
		return first, nil
	}
	return "", fmt.Errorf("in the image %s: %w", image, errNoFaketime)
}

// containers is a set, or a sharded cluster, of containers.
type containers struct {
	Config
	image   string
	library string // of libfaketime in the image, or empty
	network string
	prefix  string // of addresses, with a dot at its end
	made    int

	backend // what was started: a *set or a *cluster
}

func (c *containers) start(ctx context.Context) (uri string, err error) {
	if c.Clocks {
		if c.library, err = libraryIn(ctx, c.image); err != nil {
			return "", err
		}
	}
	if err := c.createNetwork(ctx); err != nil {
		return "", err
	}
	if c.Shards > 0 {
		c.backend = c.cluster()
	} else {
		c.backend = c.set()
	}
	return c.backend.start(ctx)
}

func (c *containers) stop() error {
	if c.backend == nil {
		return nil // it never started
	}
	return c.backend.stop()
}

func (c *containers) nodes() []node { return c.backend.(interface{ nodes() []node }).nodes() }

func (c *containers) set() *set {
	s := &set{close: c.removeNetwork}
	for range max(c.Members, 1) {
		s.members = append(s.members, c.container(memberArgs(setName)))
	}
	s.cut = func(member int, off bool) error {
		ctx, cancel := bounded()
		defer cancel()
		return s.members[member].(*ownContainer).cut(ctx, off)
	}
	return s
}

func (c *containers) cluster() *cluster {
	made := &cluster{close: c.removeNetwork, config: c.container(memberArgs(configName, "--configsvr"))}
	for i := range c.Shards {
		made.shards = append(made.shards, c.container(memberArgs(shardName(i), "--shardsvr")))
	}
	made.router = func(config string) node { return c.program("mongos", []string{"--configdb", config}) }
	return made
}

// container returns one that runs mongod.
func (c *containers) container(args []string) *ownContainer {
	return c.program("mongod", append([]string{"--dbpath", "/data/db"}, args...))
}

// subnets returns the first three bytes of a network's addresses, with a dot at the end. Which are taken
// it cannot be asked for; so it is drawn, and drawn again.
var subnets = func() string {
	b := make([]byte, 2)
	_, _ = rand.Read(b) // never fails
	return fmt.Sprintf("10.%d.%d.", 100+b[0]%100, b[1])
}

func (c *containers) createNetwork(ctx context.Context) (err error) {
	name := "devmongo-" + strings.ToLower(rand.Text()[:10])
	const attempts = 5
	for range attempts {
		c.prefix = subnets()
		if _, err = docker(ctx, "network", "create", "--label", label, "--subnet", c.prefix+"0/24", name); err == nil {
			c.network = name
			return nil
		}
	}
	return err
}

// label marks what is ours, for those who clean up after a devmongo that was killed.
const label = "devmongo"

func (c *containers) removeNetwork() error {
	ctx, cancel := bounded()
	defer cancel()
	_, err := docker(ctx, "network", "rm", c.network)
	return err
}

// bounded is the time that docker has for what no caller bounds.
func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

// program returns a container that is not started yet.
func (c *containers) program(name string, args []string) *ownContainer {
	const first, port = 10, 27017
	ip := fmt.Sprint(c.prefix, first+c.made)
	n := &ownContainer{
		name:    fmt.Sprintf("%s-%d", c.network, c.made),
		network: c.network,
		image:   c.image,
		ip:      ip,
		addr:    fmt.Sprintf("%s:%d", ip, port),
		args:    append([]string{name, "--bind_ip_all", "--port", fmt.Sprint(port)}, args...),
	}
	if c.library != "" && name == "mongod" {
		n.clock = &clock{library: c.library}
	}
	c.made++
	return n
}

// clockDir makes a directory that a container's user can read.
func clockDir() (string, error) {
	dir, err := os.MkdirTemp("", "devmongo-clock-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// inside is where a container finds its clock's directory.
const inside = "/devmongo"

func clockInside() string { return path.Join(inside, "clock") }
