package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An ownContainer is a container with an address of its own, which it keeps when it is restarted.
type ownContainer struct {
	name    string
	network string
	image   string
	ip      string
	addr    string
	args    []string
	clock   *clock // nil: the machine's
	dir     string // of the clock

	created   bool
	suspended bool
}

func (c *ownContainer) host() string { return c.addr }

func (c *ownContainer) launch(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	// A volume, as the image has one, and no --rm: a container that was killed is started again on its data.
	args := []string{"run", "--detach", "--label", label, "--name", c.name, "--network", c.network, "--ip", c.ip}
	if c.clock != nil {
		if c.dir, err = clockDir(); err != nil {
			return err
		}
		if err := c.clock.keepIn(c.dir); err != nil {
			return err
		}
		args = append(args, "--volume", c.dir+":"+inside+":ro")
		for _, e := range faketimeEnviron(c.clock.library, clockInside()) {
			args = append(args, "--env", e)
		}
	}
	c.created = true // whatever comes of it
	if _, err := docker(ctx, append(append(args, c.image), c.args...)...); err != nil {
		return err
	}
	return c.await(ctx)
}

// await waits until the server answers.
func (c *ownContainer) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		asked, done := context.WithTimeout(ctx, time.Second)
		err := command(asked, "mongodb://"+c.addr+"/", bson.D{{Key: "ping", Value: 1}})
		done()
		if err == nil {
			return nil
		}
		running, failed := docker(ctx, "inspect", "--format", "{{.State.Running}}", c.name)
		if failed == nil && running == "false" || ctx.Err() != nil {
			return errors.Join(fmt.Errorf("%s does not answer: %w", c.args[0], err), c.output())
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// output returns the container's last lines, as an error.
func (c *ownContainer) output() error {
	ctx, cancel := bounded()
	defer cancel()
	lines, err := docker(ctx, "logs", "--tail", "20", c.name)
	return cmp.Or(err, errors.New(lines))
}

func (c *ownContainer) rerun(ctx context.Context) error {
	if err := c.resume(); err != nil { // Docker shuts no paused container down
		return err
	}
	// One that was killed has stopped already, which docker stop does not mind.
	if _, err := docker(ctx, "stop", "--time", "10", c.name); err != nil {
		return err
	}
	if _, err := docker(ctx, "start", c.name); err != nil {
		return err
	}
	return c.await(ctx)
}

func (c *ownContainer) kill() error {
	if err := c.resume(); err != nil { // Docker kills no paused container
		return err
	}
	if err := c.do("kill", "--signal", "KILL", c.name); err != nil {
		return err
	}
	return c.do("wait", c.name) // until it has ended
}

func (c *ownContainer) suspend() error {
	if c.suspended {
		return nil
	}
	err := c.do("pause", c.name)
	c.suspended = err == nil
	return err
}

func (c *ownContainer) resume() error {
	if !c.suspended {
		return nil
	}
	c.suspended = false
	return c.do("unpause", c.name)
}

// cut takes the container off its network, or puts it there again under its address.
func (c *ownContainer) cut(ctx context.Context, off bool) error {
	if off {
		_, err := docker(ctx, "network", "disconnect", c.network, c.name)
		return err
	}
	_, err := docker(ctx, "network", "connect", "--ip", c.ip, c.network, c.name)
	return err
}

func (c *ownContainer) setClock(off time.Duration) error { return c.clock.set(off) }

func (c *ownContainer) stop() error {
	if !c.created {
		return nil
	}
	c.created = false
	return errors.Join(c.do("rm", "--force", "--volumes", c.name), os.RemoveAll(c.dir))
}

func (c *ownContainer) do(args ...string) error {
	ctx, cancel := bounded()
	defer cancel()
	_, err := docker(ctx, args...)
	return err
}
