// Command testreport runs `go test -json …`, prints a line for each package as soon as it is
// known, failures whole, and at the end a summary: what ran on which server, what was skipped
// for want of what, and the command that runs the rest. Its exit code is that of go test.
//
//	devmongo exec -- testreport go test -json ./...
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: testreport go test -json …")
		os.Exit(2)
	}
	code, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	os.Exit(code)
}

// run runs the command and reports what it says. It returns the command's exit code, or 1 if
// a test failed that the command did not count.
func run(argv []string, out io.Writer) (code int, err error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	from, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	cmd.Stderr = os.Stderr
	apart(cmd)
	r := newReport(out, os.Getenv)
	fmt.Fprintf(out, "%s: building; a line for each package as it ends\n", r.server())
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	defer passSignals(cmd.Process)()
	err = r.follow(from)
	if err != nil {
		_, _ = io.Copy(io.Discard, from) // so that the command can end
	}
	if ended := cmd.Wait(); ended != nil {
		var exit *exec.ExitError
		if !errors.As(ended, &exit) {
			return 1, errors.Join(err, ended)
		}
		code = exit.ExitCode()
	}
	r.summarize()
	if code == 0 && (r.failed > 0 || err != nil) {
		code = 1
	}
	return code, err
}

// stillRunning is how often a long silence is broken.
const stillRunning = 15 * time.Second

// follow reads events until the command ends, and breaks long silences.
func (r *report) follow(from io.Reader) error {
	lines := make(chan []byte)
	failed := make(chan error, 1)
	go func() {
		defer close(lines)
		in := bufio.NewReader(from)
		for {
			line, err := in.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					failed <- err
				}
				return
			}
		}
	}()
	silence := time.NewTicker(stillRunning)
	defer silence.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				select {
				case err := <-failed:
					return err
				default:
					return nil
				}
			}
			if r.heed(line) {
				silence.Reset(stillRunning)
			}
		case <-silence.C:
			r.sayWhatRuns()
		}
	}
}

// An event is one of `go doc test2json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// heed takes in a line and reports whether it printed something.
func (r *report) heed(line []byte) (said bool) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		r.print("%s", line) // go's own words, about a flag or a pattern
		return true
	}
	return r.event(e)
}
