package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/mongolock/mongolock/devmongo/internal/servers"
)

// execute runs the command with a server and returns the command's exit code.
func execute(ctx context.Context, argv []string, config servers.Config) (code int, err error) {
	server, err := servers.Start(ctx, config)
	if err != nil {
		return exitFailed, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	announce(server)

	env := append(os.Environ(), server.Environ()...)
	if inside := os.Getenv(servers.EnvControl); inside != "" && server.Kind() == servers.External {
		// Inside another exec the server and its control endpoint are the outer one's.
		return runCommand(ctx, argv, os.Environ())
	}
	control, err := startControl(server, config)
	if err != nil {
		return exitFailed, err
	}
	defer func() { err = errors.Join(err, control.close()) }()
	return runCommand(ctx, argv, append(env, servers.EnvControl+"="+control.url))
}

// patience is how long a command may take to end before it is killed.
const patience = 20 * time.Second

// runCommand runs the command to its end. When a signal ends ctx, the command and all processes that it
// started are told to end: `go test` alone would leave the test's program behind.
func runCommand(ctx context.Context, argv, env []string) (int, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	group := newGroup(cmd)
	if err := cmd.Start(); err != nil {
		const notFound, notRun = 127, 126 // as in a shell
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return notFound, err
		}
		return notRun, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the command, which is killed at the latest
	select {
	case err := <-ended:
		return exitCode(err)
	case <-ctx.Done():
	}
	group.interrupt()
	select {
	case err := <-ended:
		return exitCode(err)
	case <-time.After(patience):
		group.kill()
		return exitCode(<-ended)
	}
}

// exitCode returns the command's exit code. If a signal ended the command it is 128 plus the signal, as
// in a shell.
func exitCode(err error) (int, error) {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return 0, nil
	case !ok:
		return exitFailed, fmt.Errorf("devmongo: %w", err)
	}
	if n, ok := signalOf(exit.ProcessState); ok {
		return 128 + n, nil
	}
	return exit.ExitCode(), nil
}
