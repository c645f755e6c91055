package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"
)

// A daemon is a server process with a directory of its own.
type daemon struct {
	cmd *exec.Cmd
	dir string
}

func (d daemon) stop() error {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
	return os.RemoveAll(d.dir)
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// startDaemon starts a server and waits until it accepts connections at its address.
func startDaemon(ctx context.Context, address, dir string, cmd *exec.Cmd) (daemon, error) {
	d := daemon{cmd, dir}
	if err := cmd.Start(); err != nil {
		return d, errors.Join(err, os.RemoveAll(dir))
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && ctx.Err() == nil; {
		if conn, err := new(net.Dialer).DialContext(ctx, "tcp", address); err == nil {
			return d, conn.Close()
		}
		<-time.After(20 * time.Millisecond)
	}
	return d, errors.Join(fmt.Errorf("%s does not answer at %s", cmd.Path, address), d.stop())
}
