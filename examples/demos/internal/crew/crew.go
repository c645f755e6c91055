// Package crew runs further processes of a program, which end when it ends. It needs no
// database, so that a program with it builds quickly.
package crew

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
)

const (
	envName  = "MONGOLOCK_CREW_NAME"
	envOrder = "MONGOLOCK_CREW_ORDER"
)

// Order returns the name and the order of this process, if a crew started it.
func Order[T any]() (name string, order T, ok bool, err error) {
	name = os.Getenv(envName)
	if name == "" {
		return "", order, false, nil
	}
	return name, order, true, json.Unmarshal([]byte(os.Getenv(envOrder)), &order)
}

// A Crew is a set of processes of this program.
type Crew struct {
	Said *os.File // what they write to standard output

	members map[string]member
}

type member struct {
	cmd  *exec.Cmd
	stay io.Closer // the process's standard input; it leaves when that ends
}

// Start starts a process. Its standard input stays open until End.
func (c *Crew) Start(ctx context.Context, name string, order any) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(order)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), envName+"="+name, envOrder+"="+string(text))
	cmd.Stdout, cmd.Stderr = c.Said, os.Stderr
	stay, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if c.members == nil {
		c.members = make(map[string]member)
	}
	c.members[name] = member{cmd, stay}
	return nil
}

// Kill ends a process with SIGKILL, and waits until it is gone.
func (c *Crew) Kill(name string) error {
	m, ok := c.members[name]
	if !ok {
		return fmt.Errorf("%s does not run", name)
	}
	delete(c.members, name)
	if err := m.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = m.cmd.Wait() // the signal ended it
	return nil
}

// End lets all processes leave, and waits for them.
func (c *Crew) End() {
	for _, m := range c.members {
		_ = m.stay.Close()
	}
	for _, m := range c.members {
		_ = m.cmd.Wait() // how it ended is told by what it said
	}
	clear(c.members)
}
