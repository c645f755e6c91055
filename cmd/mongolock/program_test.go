//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

// A program is `mongolock` with a database of the test's own.
type program struct {
	t   *testing.T
	env []string
	dir string
}

func newProgram(t *testing.T) *program {
	t.Helper()
	t.Parallel()
	uri, db := testserver.URI(t), "cli_"+strings.ToLower(rand.Text()[:10])
	database := testserver.Client(t).Database(db)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = database.Drop(ctx) // the server may be busy
	})
	return &program{t: t, dir: t.TempDir(), env: slices.Clip(append(os.Environ(), "MONGODB_URI="+uri, "MONGOLOCK_DB="+db))}
}

// A running is one run of the program.
type running struct {
	*exec.Cmd
	t      *testing.T
	out    *lab.Text
	ended  chan struct{}
	status int
}

// start starts the program; it is killed when the test ends.
func (p *program) start(args ...string) *running {
	p.t.Helper()
	self, err := os.Executable()
	require.NoError(p.t, err)
	r := &running{t: p.t, out: new(lab.Text), ended: make(chan struct{}), Cmd: &exec.Cmd{
		Path: self, Args: append([]string{"mongolock"}, args...), Dir: p.dir, Env: p.env,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}}
	r.Stdout, r.Stderr = r.out, r.out
	r.WaitDelay = time.Second
	require.NoError(p.t, r.Cmd.Start())
	go func() { // ends with the process
		_ = r.Cmd.Wait()
		r.status = statusOf(r.ProcessState)
		close(r.ended)
	}()
	p.t.Cleanup(func() {
		_ = syscall.Kill(r.Process.Pid, syscall.SIGCONT)
		_ = r.Process.Kill()
		<-r.ended
		if p.t.Failed() {
			p.t.Logf("mongolock %s:\n%s", strings.Join(args, " "), r.out)
		}
	})
	return r
}

// code waits for the end.
func (r *running) code() int {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(pace.Of(30 * time.Second)):
		r.t.Fatalf("did not end: %s", r.out)
	}
	return r.status
}

func (r *running) signal(s syscall.Signal) {
	r.t.Helper()
	require.NoError(r.t, syscall.Kill(r.Process.Pid, s))
}

// guard is the process ID of the run's guard, once it is there.
func (r *running) guard() int {
	r.t.Helper()
	guard := 0
	require.Eventually(r.t, func() bool {
		for _, dir := range glob("/proc/[0-9]*") {
			line, _ := os.ReadFile(dir + "/cmdline")
			if pid, _ := strconv.Atoi(filepath.Base(dir)); strings.HasPrefix(string(line), guardName+"\x00") {
				if p, _ := processOf(filepath.Base(dir)); p.parent == r.Process.Pid {
					guard = pid
				}
			}
		}
		return guard != 0
	}, 10*time.Second, 10*time.Millisecond, "there is no guard")
	return guard
}

// says waits until the program has written a text.
func (r *running) says(text string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return strings.Contains(r.out.String(), text) }, pace.Of(20*time.Second), 10*time.Millisecond, "it never says %q", text)
}

func glob(pattern string) []string {
	all, _ := filepath.Glob(pattern)
	return all
}

// stubborn is a command whose two processes ignore SIGTERM and write the time, in
// seconds, to two files for as long as they live, or until there is a file named over.
const stubborn = `trap "" TERM
` + beat + `
beat child &
beat parent`

// beat is a function of bash that starts no process: a test that waits leaves the processors to the others.
const beat = `beat() { exec 9<> <(:); while [ ! -e over ]; do echo $EPOCHREALTIME >> $1 || break; read -t 0.01 -u 9; done; }`

// beats is when the processes of stubborn lived last.
func (p *program) beats() map[string]time.Time {
	last := map[string]time.Time{}
	for _, name := range []string{"child", "parent"} {
		text, _ := os.ReadFile(filepath.Join(p.dir, name))
		lines := strings.Fields(string(text))
		if len(lines) == 0 {
			continue
		}
		n, _ := strconv.ParseInt(strings.Replace(lines[len(lines)-1], ".", "", 1), 10, 64)
		last[name] = time.UnixMicro(n)
	}
	return last
}

// untilBeating waits until both live. The test leaves neither behind.
func (p *program) untilBeating() {
	p.t.Helper()
	p.t.Cleanup(func() {
		assert.NoError(p.t, os.WriteFile(filepath.Join(p.dir, "over"), nil, 0o600))
		time.Sleep(100 * time.Millisecond) // real: the beating processes see it and end
	})
	require.Eventually(p.t, func() bool { return len(p.beats()) == 2 }, pace.Of(20*time.Second), 10*time.Millisecond, "the command does not run")
}

// rival waits for the key and says when it had it.
func (p *program) rival() time.Time {
	p.t.Helper()
	r := p.start("run", "--wait", "25s", "k", "--", "date", "+%s%N")
	require.Equal(p.t, 0, r.code(), "the rival: %s", r.out)
	n, err := strconv.ParseInt(strings.TrimSpace(r.out.String()), 10, 64)
	require.NoError(p.t, err)
	return time.Unix(0, n)
}

// livesOn checks that a process of the command beats when the rival has the key.
func (p *program) livesOn(name string, rival time.Time) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.beats()[name].After(rival) }, pace.Of(10*time.Second), 10*time.Millisecond, "the %s", name)
}

// dead checks that the command's processes ended before the rival had the key, and did not
// come back.
func (p *program) dead(rival time.Time) {
	p.t.Helper()
	time.Sleep(200 * time.Millisecond) // real: an absence; a process that still lived would beat
	for name, last := range p.beats() {
		assert.Less(p.t, last, rival, "the %s lived on for %v after a rival had the key", name, last.Sub(rival))
		p.t.Logf("the %s ended %v before a rival had the key", name, rival.Sub(last))
	}
}
