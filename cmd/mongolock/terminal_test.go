//go:build linux

package main

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
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

// Nobody could continue it, so it would only stop again, and again.
func TestACommandThatReadsATerminalThatItCannotHaveIsNotContinuedOverAndOver(t *testing.T) {
	p := newProgram(t)
	s := p.onTerminal()
	// The shell that runs mongolock leads no job of this terminal's shell: setsid would take the terminal away, so it is orphaned.
	s.send("(bash -c '$m run k -- bash -c \"read n\" > out 2>&1 < /dev/tty & echo $! > pid' &)\n")
	read := func() string { text, _ := os.ReadFile(p.dir + "/out"); return string(text) }
	require.Eventually(t, func() bool { return strings.Contains(read(), "the command has stopped (") }, 15*time.Second, 20*time.Millisecond, "it never says so")
	text, err := os.ReadFile(p.dir + "/pid")
	require.NoError(t, err)
	ticks := func() int { // of the processor
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(text)) + "/stat")
		require.NoError(t, err)
		fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")"):]))
		require.Greater(t, len(fields), 13)
		user, _ := strconv.Atoi(fields[12])
		system, _ := strconv.Atoi(fields[13])
		return user + system
	}
	before := ticks()
	time.Sleep(2 * time.Second) // real: what it computes meanwhile
	assert.Less(t, ticks()-before, 60, "hundredths of a second of processor time in two seconds")
	s.send("kill $(cat pid)\n")
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

func TestTablesAndColoursAreForTerminalsAlone(t *testing.T) {
	p := newProgram(t)
	p.start("run", "--owner", "billing-7", "k", "--", "sleep", "60")
	s := p.onTerminal()
	s.send("until $m ls | grep -q billing; do sleep 0.05; done\n")
	s.send("$m ls\n")
	s.expect("KEY")
	s.expect("\x1b[32m")
	s.send("NO_COLOR=1 $m ls | cat; echo; NO_COLOR=1 $m ls; echo do\"\"ne\n")
	mark := len(s.out.String())
	s.expect("k\texclusive\tbilling-7\t")
	s.expect("KEY  MODE")
	s.expect("done")
	assert.NotContains(t, s.out.String()[mark:], "\x1b[3")
}

func TestWatchDrawsATableAndGivesTheScreenBack(t *testing.T) {
	p := newProgram(t)
	p.start("run", "--owner", "billing-7", "k", "--", "sleep", "60")
	s := p.onTerminal()
	s.send("$m watch --every 50ms; echo code=$?\n")
	s.expect(enterScreen)
	s.expect("billing-7")
	s.expect("1 held")
	s.send("\x03")
	s.expect(leaveScreen)
	s.expect("code=0")
}

func TestWatchGivesTheScreenBackWhileItIsStoppedAndDrawsAgain(t *testing.T) {
	p := newProgram(t)
	p.start("run", "--owner", "billing-7", "k", "--", "sleep", "60")
	s := p.onTerminal()
	s.send("until $m ls | grep -q billing; do sleep 0.05; done\n")
	s.send("$m watch --every 1h\n")
	for range 2 {
		s.expect(enterScreen)
		s.expect("1 held")
		s.send("\x1a")
		s.expect(leaveScreen)
		s.expect("Stopped")
		s.send("bg; sleep 0.3; echo at\"\"-the-prompt\n") // it must not draw over the shell
		s.expect("at-the-prompt")
		s.send("fg\n")
	}
	s.expect("1 held")
	s.send("\x03")
	s.expect(leaveScreen)
	assert.Equal(t, 3, strings.Count(s.out.String(), enterScreen))
}
