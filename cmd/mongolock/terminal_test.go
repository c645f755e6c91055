//go:build linux

package main

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/lab"
)

// A console is a pseudo-terminal with a program on it.
type console struct {
	t    *testing.T
	pty  *os.File
	out  *lab.Text
	seen int // what was expected so far
}

// onTerminal starts a shell with job control on a terminal. `$m` is the program.
func (p *program) onTerminal() *console {
	p.t.Helper()
	self, err := os.Executable()
	require.NoError(p.t, err)
	link := p.dir + "/mongolock"
	require.NoError(p.t, os.Symlink(self, link))
	shell := exec.Command("bash", "--norc", "--noprofile", "-i")
	shell.Dir = p.dir
	shell.Env = slices.Concat(p.env, []string{"m=" + link, "PS1=> ", "TERM=xterm", "INPUTRC=/dev/null", "PS0="})
	master, err := pty.StartWithSize(shell, &pty.Winsize{Rows: 24, Cols: 100})
	require.NoError(p.t, err)
	s := &console{t: p.t, pty: master, out: new(lab.Text)}
	go func() { _, _ = io.Copy(s.out, master) }() // ends with the terminal
	p.t.Cleanup(func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGHUP)
		_ = shell.Process.Kill()
		_ = shell.Wait()
		_ = master.Close()
		if p.t.Failed() {
			p.t.Logf("the terminal:\n%s", s.out)
		}
	})
	s.expect("> ")
	s.send("bind 'set enable-bracketed-paste off'\n")
	s.expect("> ")
	return s
}

func (s *console) send(text string) {
	s.t.Helper()
	_, err := s.pty.WriteString(text)
	require.NoError(s.t, err)
}

// expect waits for a text behind what was expected before.
func (s *console) expect(text string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		out := s.out.String()
		i := strings.Index(out[s.seen:], text)
		if i >= 0 {
			s.seen += i + len(text)
		}
		return i >= 0
	}, 15*time.Second, 10*time.Millisecond, "the terminal never showed %q", text)
}

func TestACommandReadsTheTerminalAndItsSize(t *testing.T) {
	s := newProgram(t).onTerminal()
	s.send("$m run k -- bash -c 'read -p \"name? \" n; echo \"hello, $n\"; stty size'; echo code=$?\n")
	s.expect("name? ")
	s.send("Ada\n")
	s.expect("hello, Ada")
	s.expect("24 100")
	s.expect("code=0")
}

func TestCtrlCEndsTheCommandAndTheScriptAroundIt(t *testing.T) {
	s := newProgram(t).onTerminal()
	s.send("$m run k -- bash -c 'trap \"echo caught; exit 9\" INT; echo rea\"\"dy; while :; do sleep 0.05; done'; echo code=$?\n")
	s.expect("ready")
	s.send("\x03")
	s.expect("caught")
	s.expect("code=9")
	// Without a handler, the loop of the script that runs it ends as well.
	s.send("bash -c 'for i in 1 2 3; do $m run k -- bash -c \"echo round\"\"-\"$i\"; sleep 20\"; done; echo went\"\"-on'; echo code=$?\n")
	s.expect("round-1")
	time.Sleep(200 * time.Millisecond) // real: the command is in its sleep
	s.send("\x03")
	s.expect("> ")
	s.send("echo code=$?\n")
	s.expect("code=130")
	assert.NotContains(t, s.out.String(), "round-2")
	assert.NotContains(t, s.out.String(), "went-on")
}

func TestCtrlZStopsTheJobAndFgGoesOn(t *testing.T) {
	s := newProgram(t).onTerminal()
	s.send("$m run --ttl 5s k -- sh -c 'echo has\"\"-it; exec cat'\n")
	s.expect("has-it")
	s.send("one\n")
	s.expect("one\r\n" + "one\r\n")
	s.send("\x1a")
	s.expect("Stopped")
	s.send("echo at\"\"-the-prompt\n")
	s.expect("at-the-prompt")
	s.send("fg\n")
	s.expect("$m run")
	time.Sleep(200 * time.Millisecond) // real: the job reads the terminal again
	s.send("two\n")
	s.expect("two\r\n" + "two\r\n")
	s.send("\x04")
	s.expect("> ")
	s.send("echo code=$?\n")
	s.expect("code=0")
}

func TestAJobThatIsStoppedForLongerThanItsLeaseIsEnded(t *testing.T) {
	p := newProgram(t)
	s := p.onTerminal()
	s.send("$m run --ttl 2s k -- sh -c 'echo has\"\"-it; exec cat'\n")
	s.expect("has-it")
	s.send("\x1a")
	s.expect("Stopped")
	p.rival()
	s.send("fg\n")
	s.expect("lost k")
	s.send("echo code=$?\n")
	s.expect("code=71")
}

func TestAJobInTheBackgroundStopsWhenItReadsTheTerminal(t *testing.T) {
	s := newProgram(t).onTerminal()
	s.send("$m run k -- bash -c 'read n; echo \"hello, $n\"' &\n")
	time.Sleep(time.Second) // real: the job is in its read
	s.send("\n")
	s.expect("Stopped")
	s.send("fg\n")
	time.Sleep(300 * time.Millisecond) // real: the job reads the terminal again
	s.send("Ada\n")
	s.expect("hello, Ada")
}

func TestACommandWithoutTheTerminalAsInputStillMayAskThere(t *testing.T) {
	s := newProgram(t).onTerminal()
	s.send("echo | $m run k -- bash -c 'read -p \"pass\"\"word? \" n < /dev/tty; echo \"hello, $n\"'; echo code=$?\n")
	time.Sleep(500 * time.Millisecond) // real: the command asks
	s.send("Ada\n")
	s.expect("hello, Ada")
	s.expect("code=0")
}

// There the command shares the group of the shell's job, which has others in it.
func TestNothingThatWasStartedOnATerminalOutlivesItsLease(t *testing.T) {
	for _, signal := range []string{"KILL", "STOP", "TERM"} {
		t.Run(signal, func(t *testing.T) {
			p := newProgram(t)
			s := p.onTerminal()
			require.NoError(t, os.WriteFile(p.dir+"/work", []byte(leave+leavers["timeout"]), 0o600))
			s.send("sleep 60 | $m run --ttl 4s --margin 1s k -- bash -c 'echo $PPID > pid; exec bash work'; echo en\"\"ded\n")
			p.untilBeating()
			pid, err := os.ReadFile(p.dir + "/pid")
			require.NoError(t, err)
			require.NoError(t, exec.Command("kill", "-"+signal, strings.TrimSpace(string(pid))).Run())
			p.dead(p.rival())
			assert.NotContains(t, s.out.String(), "ended", "the rest of the pipeline goes on")
		})
	}
}

func TestBreakAsksOnATerminal(t *testing.T) {
	p := newProgram(t)
	p.start("run", "--ttl", "3s", "--owner", "billing-7", "k", "--", "sleep", "60")
	s := p.onTerminal()
	s.send("until $m ls | grep -q billing; do sleep 0.05; done\n")
	s.send("$m break k --reason tests; echo code=$?\n")
	s.expect("Break it? [y/N]")
	s.send("n\n")
	s.expect("code=78")
	s.send("$m break k --reason tests; echo code=$?\n")
	s.expect("Break it? [y/N]")
	s.send("y\n")
	s.expect("broke k of billing-7")
	s.expect("code=0")
}

func TestABreakOfPathsThatCameTooLateSaysSo(t *testing.T) {
	p := newProgram(t)
	holder := p.start("paths", "lock", "--dir", "locks", "src", "--", "sh", "-c", "until test -e go; do sleep 0.05; done")
	s := p.onTerminal()
	s.send("until $m paths ls --dir locks | grep -q src; do sleep 0.05; done\n")
	s.send("$m paths break --dir locks src; echo code=$?\n")
	s.expect("Break it? [y/N]")
	require.NoError(t, os.WriteFile(p.dir+"/go", nil, 0o600))
	require.Equal(t, 0, holder.code())
	s.send("y\n")
	s.expect("nobody holds src any more")
	s.expect("code=66")
}

func TestTablesAreForTerminalsAlone(t *testing.T) {
	p := newProgram(t)
	p.start("run", "--owner", "billing-7", "k", "--", "sleep", "60")
	s := p.onTerminal()
	s.send("until $m ls | grep -q billing; do sleep 0.05; done\n")
	s.send("$m ls | cat; echo; $m ls; echo do\"\"ne\n")
	s.expect("k\texclusive\tbilling-7\t")
	s.expect("KEY  MODE")
	s.expect("done")
}
