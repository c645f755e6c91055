package servers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A child is a running program. One goroutine starts it and waits for it.
type child struct {
	cmd    *exec.Cmd
	ready  chan struct{} // closed when the ready line was printed
	exited chan struct{} // closed when the process has ended and its output was read
	log    *slog.Logger

	mu   sync.Mutex // protects tail and err
	tail []string   // the last lines of output, for the error of a start that failed
	err  error      // how it ended; valid once exited is closed
}

// startChild runs a program, with env added to our environment, and watches its output for the line that
// reports that it is ready.
func startChild(path string, args, env []string, readyLine string, log *slog.Logger) (*child, error) {
	c := &child{
		cmd:    exec.Command(path, args...),
		ready:  make(chan struct{}),
		exited: make(chan struct{}),
		log:    log.With("program", filepath.Base(path)),
	}
	c.cmd.Env = append(os.Environ(), env...)
	output, writer := io.Pipe()
	c.cmd.Stdout, c.cmd.Stderr = writer, writer
	// An interrupt from the terminal is for us; the server ends when we end it.
	c.cmd.SysProcAttr = detached()
	started := make(chan error)
	go func() {
		// The system kills the child when the thread that started it ends. So this goroutine keeps
		// its thread for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err != nil {
			writer.Close()
			return
		}
		var read sync.WaitGroup
		read.Go(func() { c.read(output, readyLine) })
		err = c.cmd.Wait()
		writer.Close()
		read.Wait()
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
		close(c.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

func (c *child) read(output io.Reader, readyLine string) {
	const keep = 20
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	ready := false
	for lines.Scan() {
		c.log.Debug(lines.Text())
		c.mu.Lock()
		if c.tail = append(c.tail, lines.Text()); len(c.tail) > keep {
			c.tail = c.tail[1:]
		}
		c.mu.Unlock()
		if !ready && strings.Contains(lines.Text(), readyLine) {
			ready = true
			close(c.ready)
		}
	}
	io.Copy(io.Discard, output) // a line beyond the buffer must not stop the process
}

// kill ends the process with SIGKILL and waits until it is gone.
func (c *child) kill() {
	c.cmd.Process.Kill()
	<-c.exited
}

// end asks the process to end, and kills it if it does not.
func (c *child) end() {
	const patience = 10 * time.Second
	if continueSignal != nil { // a stopped process does not see that it is asked to end
		c.cmd.Process.Signal(continueSignal)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.kill()
		return
	}
	select {
	case <-c.exited:
	case <-time.After(patience):
		c.log.Warn("devmongo: killed a server that did not end when asked to")
		c.kill()
	}
}

// failure describes how an exited process ended, with its last lines of output.
func (c *child) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.err
	if err == nil {
		err = errors.New("exited without an error")
	}
	return fmt.Errorf("%w\n%s", err, strings.Join(c.tail, "\n"))
}
