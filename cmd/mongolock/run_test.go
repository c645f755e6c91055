//go:build linux

package main

import (
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

func TestALostLeaseEndsTheProcessGroupBeforeARivalIsGranted(t *testing.T) {
	p := newProgram(t)
	proxy := faultproxy.New(t, testserver.URI(t))
	holder := &program{t, append(p.env, "MONGODB_URI="+proxy.URI()), p.dir}
	a := holder.start("run", "--ttl", "4s", "--margin", "1s", "k", "--", "bash", "-c", stubborn)
	p.untilBeating()
	proxy.Silence()
	p.dead(p.rival())
	assert.Equal(t, exitLost, a.code())
	assert.Contains(t, a.out.String(), "lost k, ending the command")
}

// leave is what these scripts begin with: each has a step in another process group, as one that timeout bounds.
const leave = beat + `; export -f beat
`

var leavers = map[string]string{
	"timeout":           `timeout 60 bash -c 'trap "" TERM; beat child' & timeout 60 bash -c 'beat parent'`,
	"job control":       `set -m; bash -c 'trap "" TERM; beat child' & bash -c 'beat parent' & wait`,
	"a session":         `setsid bash -c 'trap "" TERM; beat child' & beat parent`,
	"a daemon":          `(setsid bash -c 'trap "" TERM; beat child' &); beat parent`,
	"no environment":    `env -i PATH="$PATH" setsid bash -c "$(declare -f beat); trap '' TERM; beat child" & beat parent`,
	"a chain":           `chain() { echo $EPOCHREALTIME >> child; sleep 0.02; [ -e over ] || setsid bash -c chain & }; export -f chain; (setsid bash -c chain &); beat parent`,
	"another namespace": `unshare -pf --mount-proc setsid bash -c 'trap "" TERM; beat child' & beat parent`,
}

// Steps that have left the process group end before a rival has the key, whatever ends the run.
func TestNothingThatWasStartedUnderALeaseOutlivesIt(t *testing.T) {
	ends := map[string]struct {
		signal syscall.Signal
		code   int
	}{
		"killed":  {syscall.SIGKILL, exitSignal + int(syscall.SIGKILL)},
		"told":    {syscall.SIGTERM, exitSignal + int(syscall.SIGTERM)},
		"stopped": {syscall.SIGSTOP, exitLost},
	}
	for leaver, script := range leavers {
		for end, e := range ends {
			t.Run(leaver+", "+end, func(t *testing.T) {
				p := newProgram(t)
				if leaver == "no environment" && end == "killed" {
					return // its parent ends with the run: nothing tells where it comes from
				}
				if leaver == "another namespace" && exec.Command("unshare", "-pf", "--mount-proc", "true").Run() != nil {
					t.Skip("needs the right to make a PID namespace")
				}
				a := p.start("run", "--ttl", "4s", "--margin", "1s", "k", "--", "bash", "-c", leave+script)
				p.untilBeating()
				a.signal(e.signal)
				p.dead(p.rival())
				if e.signal == syscall.SIGSTOP {
					a.signal(syscall.SIGCONT)
				}
				assert.Equal(t, e.code, a.code())
			})
		}
	}
	t.Run("broken", func(t *testing.T) {
		p := newProgram(t)
		a := p.start("run", "--ttl", "3s", "k", "--", "bash", "-c", leave+leavers["timeout"])
		p.untilBeating()
		require.Zero(t, p.start("break", "k", "--reason", "tests", "--yes").code())
		p.dead(p.rival())
		assert.Equal(t, exitLost, a.code())
	})
}

// A daemon that is meant to live on is started without the mark. So the times above can tell, too.
func TestControlADaemonWithoutTheMarkOutlivesTheLease(t *testing.T) {
	p := newProgram(t)
	proxy := faultproxy.New(t, testserver.URI(t))
	holder := &program{t, append(p.env, "MONGODB_URI="+proxy.URI()), p.dir}
	a := holder.start("run", "--ttl", "2s", "k", "--", "bash", "-c", leave+`(env -u MONGOLOCK_MARK setsid bash -c 'beat child' &); beat parent`)
	p.untilBeating()
	proxy.Silence()
	rival := p.rival()
	a.code()
	p.livesOn("child", rival)
	assert.Less(t, p.beats()["parent"], rival)
}

// A person has to know why a server that the command has started is gone.
func TestWhatACommandLeavesBehindIsEndedAndNamed(t *testing.T) {
	p := newProgram(t)
	a := p.start("run", "k", "--", "bash", "-c", leave+`(setsid bash -c 'beat child' &); until [ -e child ]; do sleep 0.01; done; echo $EPOCHREALTIME > parent; exit 4`)
	p.untilBeating()
	p.dead(p.rival())
	assert.Equal(t, 4, a.code())
	assert.Regexp(t, `the command has ended and left processes, which are ended now: .*\d+ \(bash\) \(env -u MONGOLOCK_MARK `, a.out.String())
}

// The outer run ends what the inner one has started, with its guard.
func TestARunWithinARunIsEndedWithIt(t *testing.T) {
	p := newProgram(t)
	self, err := os.Executable()
	require.NoError(t, err)
	a := p.start("run", "--ttl", "4s", "--margin", "1s", "k", "--", "bash", "-c", leave+`exec -a mongolock "`+self+`" run inner -- bash -c '`+strings.ReplaceAll(leavers["a daemon"], "'", `'"'"'`)+`'`)
	p.untilBeating()
	a.signal(syscall.SIGKILL)
	p.dead(p.rival())
}

func TestAKilledRunTakesItsProcessGroupAlong(t *testing.T) {
	p := newProgram(t)
	a := p.start("run", "--ttl", "4s", "--margin", "1s", "k", "--", "bash", "-c", stubborn)
	p.untilBeating()
	killed := time.Now()
	a.signal(syscall.SIGKILL)
	p.dead(p.rival())
	for name, last := range p.beats() {
		assert.Less(t, last.Sub(killed), time.Second, "the %s", name)
	}
}

func TestAKilledRunWhoseGuardIsKilledTooTakesItsCommandAlong(t *testing.T) {
	p := newProgram(t)
	a := p.start("run", "--ttl", "4s", "--margin", "1s", "k", "--", "bash", "-c", stubborn+"\n")
	p.untilBeating()
	guard := a.guard()
	a.signal(syscall.SIGSTOP) // or it starts another
	require.NoError(t, syscall.Kill(guard, syscall.SIGKILL))
	a.signal(syscall.SIGKILL)
	killed := time.Now()
	time.Sleep(500 * time.Millisecond) // real: an absence; a process that still lived would beat
	assert.Less(t, p.beats()["parent"].Sub(killed), 300*time.Millisecond)
}

func TestAStoppedRunLosesItsProcessGroupBeforeARivalIsGranted(t *testing.T) {
	p := newProgram(t)
	a := p.start("run", "--ttl", "4s", "--margin", "1s", "k", "--", "bash", "-c", stubborn)
	p.untilBeating()
	a.signal(syscall.SIGSTOP)
	p.dead(p.rival())
	a.signal(syscall.SIGCONT)
	assert.Equal(t, exitLost, a.code())
}

// The guard knows what to end, and when, before the command does anything: what the command
// does first here is to stop the process that started it.
func TestARunThatIsStoppedAsItsCommandBeginsLosesItsProcessGroup(t *testing.T) {
	p := newProgram(t)
	a := p.start("run", "--ttl", "4s", "--margin", "1s", "k", "--", "bash", "-c", "kill -STOP $PPID; "+stubborn)
	p.untilBeating()
	p.dead(p.rival())
	a.signal(syscall.SIGCONT)
	assert.Equal(t, exitLost, a.code())
}

// It is the guard that ends the command of a run that is stopped.
func TestControlWithoutItsGuardAStoppedRunKeepsItsProcessGroup(t *testing.T) {
	p := newProgram(t)
	a := p.start("run", "--ttl", "2s", "k", "--", "bash", "-c", stubborn)
	p.untilBeating()
	guard := a.guard()
	a.signal(syscall.SIGSTOP) // or it starts another
	require.NoError(t, syscall.Kill(guard, syscall.SIGKILL))
	rival := p.rival()
	for _, name := range []string{"parent", "child"} {
		p.livesOn(name, rival)
	}
	// Continued, it ends what it can no longer vouch for at once.
	continued := time.Now()
	a.signal(syscall.SIGCONT)
	assert.Equal(t, exitLost, a.code())
	for name, last := range p.beats() {
		assert.Less(t, last.Sub(continued), 500*time.Millisecond, "the %s", name)
	}
}

func TestAShortStopCostsNothing(t *testing.T) {
	p := newProgram(t)
	a := p.start("run", "--ttl", "10s", "k", "--", "sh", "-c", "echo ready; sleep 4; exit 3")
	a.says("ready")
	a.signal(syscall.SIGSTOP)
	time.Sleep(2 * time.Second) // real: stopped for a while, though shorter than its TTL
	a.signal(syscall.SIGCONT)
	assert.Equal(t, 3, a.code())
}

func TestAKilledGuardIsReplacedByOneThatKnowsWhatToEnd(t *testing.T) {
	p := newProgram(t)
	a := p.start("run", "--ttl", "4s", "--margin", "1s", "k", "--", "bash", "-c", stubborn)
	p.untilBeating()
	first := a.guard()
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	require.Eventually(t, func() bool { return a.guard() != first }, pace.Of(10*time.Second), 20*time.Millisecond, "no other guard")
	time.Sleep(300 * time.Millisecond) // real: until it was told the group
	a.signal(syscall.SIGSTOP)
	p.dead(p.rival())
	a.signal(syscall.SIGCONT)
	assert.Equal(t, exitLost, a.code())
}

// kill -STOP is for whoever sends it to undo. The key is kept meanwhile.
func TestACommandThatIsStoppedStaysStopped(t *testing.T) {
	p := newProgram(t)
	a := p.start("run", "--ttl", "5s", "k", "--", "bash", "-c", "echo $$ > pid; while :; do echo $EPOCHREALTIME >> parent; sleep 0.02; done")
	require.Eventually(t, func() bool { return len(p.beats()) == 1 }, pace.Of(20*time.Second), 10*time.Millisecond)
	text, err := os.ReadFile(filepath.Join(p.dir, "pid"))
	require.NoError(t, err)
	group, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(-group, syscall.SIGSTOP))
	time.Sleep(300 * time.Millisecond) // real: the beats that were under way
	stopped := p.beats()["parent"]
	time.Sleep(500 * time.Millisecond) // real: an absence; a command that was continued would beat
	assert.Equal(t, stopped, p.beats()["parent"], "it was continued")
	a.signal(syscall.SIGCONT)
	require.Eventually(t, func() bool { return p.beats()["parent"].After(stopped) }, pace.Of(10*time.Second), 10*time.Millisecond, "SIGCONT to mongolock continues it")
	a.signal(syscall.SIGTERM)
	a.code()
}

func TestTheFirstProcessOfAContainerReapsOrphans(t *testing.T) {
	p := newProgram(t)
	unshare, err := exec.LookPath("unshare")
	if err != nil || exec.Command(unshare, "-pf", "--mount-proc", "true").Run() != nil {
		t.Skip("needs the right to make a PID namespace")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	// Each orphan has a parent that ends first, and a session of its own, so that it is no member of the command's group.
	script := `exec -a mongolock "$0" run k -- bash -c 'for i in 1 2 3 4 5; do (setsid sleep 0.1 &); done; sleep 1; cat /proc/[0-9]*/stat | grep -c ") Z" || true'`
	a := &exec.Cmd{Path: unshare, Args: []string{"unshare", "-pf", "--mount-proc", "bash", "-c", script, self}, Env: p.env, Dir: p.dir}
	out, err := a.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "0\n", string(out), "zombies")
}

func TestAKilledGuardEndsNothing(t *testing.T) {
	p := newProgram(t)
	a := p.start("run", "k", "--", "sh", "-c", "echo ready; sleep 1; exit 3")
	a.says("ready")
	require.NoError(t, syscall.Kill(a.guard(), syscall.SIGKILL))
	assert.Equal(t, 3, a.code(), "%s", a.out)
}

func TestAHoldThatIsOverEndsTheCommand(t *testing.T) {
	p := newProgram(t)
	begun := time.Now()
	a := p.start("run", "--max-hold", "1s", "k", "--", "bash", "-c", stubborn)
	assert.Equal(t, exitLost, a.code())
	assert.Contains(t, a.out.String(), "held for its MaxHold")
	assert.Less(t, time.Since(begun), 5*time.Second)
	p.dead(p.rival())
}

func TestProcessesThatACommandLeavesInItsGroupEndBeforeTheKeyIsGivenBack(t *testing.T) {
	p := newProgram(t)
	a := p.start("run", "k", "--", "bash", "-c", `trap "" TERM; (while :; do echo $EPOCHREALTIME >> child; sleep 0.01; done) & sleep 0.3; echo $EPOCHREALTIME > parent; exit 4`)
	p.untilBeating()
	p.dead(p.rival())
	assert.Equal(t, 4, a.code())
}

func TestSignalsArePassedOn(t *testing.T) {
	// Under nohup the tests would pass an ignored SIGHUP on to their programs, and no shell can
	// trap a signal that it began with ignored. One that is handled is reset by exec.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) }) // after the subtests, which run side by side
	for _, s := range []struct {
		signal syscall.Signal
		name   string
	}{{syscall.SIGTERM, "TERM"}, {syscall.SIGINT, "INT"}, {syscall.SIGHUP, "HUP"}, {syscall.SIGUSR1, "USR1"}, {syscall.SIGUSR2, "USR2"}, {syscall.SIGWINCH, "WINCH"}} {
		t.Run(s.name, func(t *testing.T) {
			p := newProgram(t)
			a := p.start("run", "k", "--", "bash", "-c", `trap "echo got it; exit 5" `+s.name+`; echo ready; while :; do sleep 0.05; done`)
			a.says("ready")
			a.signal(s.signal)
			assert.Equal(t, 5, a.code())
			assert.Contains(t, a.out.String(), "got it")
		})
	}
}

func TestASignalEndsTheWaitForAKey(t *testing.T) {
	p := newProgram(t)
	holder := p.start("run", "k", "--", "sleep", "30")
	require.Eventually(t, func() bool {
		show := p.start("show", "k")
		show.code()
		return strings.Contains(show.out.String(), "held")
	}, 10*time.Second, 50*time.Millisecond)
	waiter := p.start("run", "k", "--", "true")
	time.Sleep(500 * time.Millisecond) // real: until it waits
	waiter.signal(syscall.SIGTERM)
	assert.Equal(t, exitSignal+int(syscall.SIGTERM), waiter.code())
	holder.signal(syscall.SIGTERM)
	holder.code()
}

func TestASignalThatIsIgnoredStaysIgnored(t *testing.T) {
	p := newProgram(t)
	self, err := os.Executable()
	require.NoError(t, err)
	a := &exec.Cmd{Path: "/bin/bash", Args: []string{"bash", "-c", `trap "" HUP; exec -a mongolock "$0" run k -- bash -c 'kill -HUP $$; echo alive'`, self}, Env: p.env, Dir: p.dir}
	out, err := a.CombinedOutput()
	assert.NoError(t, err)
	assert.Equal(t, "alive\n", string(out))
}

func TestOpenFilesArePassedOn(t *testing.T) {
	p := newProgram(t)
	self, err := os.Executable()
	require.NoError(t, err)
	a := &exec.Cmd{Path: "/bin/bash", Args: []string{"bash", "-c", `exec 3> third; exec -a mongolock "$0" run k -- bash -c 'echo hello >&3'`, self}, Env: p.env, Dir: p.dir}
	out, err := a.CombinedOutput()
	require.NoError(t, err, "%s", out)
	text, err := os.ReadFile(filepath.Join(p.dir, "third"))
	require.NoError(t, err)
	assert.Equal(t, "hello\n", string(text))
}

// Nothing of a run outlives it: neither the guard, nor the key.
func TestNothingIsLeft(t *testing.T) {
	p := newProgram(t)
	a := p.start("run", "k", "--", "sh", "-c", "echo ready; sleep 60")
	a.says("ready")
	guard := a.guard()
	a.signal(syscall.SIGUSR1)
	assert.Equal(t, exitSignal+int(syscall.SIGUSR1), a.code())
	assert.ErrorIs(t, syscall.Kill(guard, 0), syscall.ESRCH)
	ls := p.start("ls", "--all")
	ls.code()
	assert.Contains(t, ls.out.String(), "mongolock: nothing in ")
}

// A path is held as a key is: its holder's command ends before another can have it. (The
// control above shows that these times can tell.)
func TestALostPathEndsTheProcessGroupBeforeARivalIsGranted(t *testing.T) {
	p := newProgram(t)
	proxy := faultproxy.New(t, testserver.URI(t))
	holder := &program{t, append(p.env, "MONGODB_URI="+proxy.URI()), p.dir}
	a := holder.start("paths", "lock", "--ttl", "3s", "--margin", "1s", "src/api", "--", "bash", "-c", stubborn)
	p.untilBeating()
	time.Sleep(3500 * time.Millisecond) // it is refreshed
	held := p.start("paths", "lock", "--try", "src", "--", "true")
	require.Equal(t, exitHeld, held.code(), "%s", held.out)
	proxy.Silence()
	p.dead(p.pathRival())
	assert.Equal(t, exitLost, a.code())
	assert.Contains(t, a.out.String(), "lost /src/api, ending the command: lease is lost: not refreshed in time")
}

// pathRival waits for the path and says when it had it.
func (p *program) pathRival() time.Time {
	p.t.Helper()
	r := p.start("paths", "lock", "--wait", "25s", "src", "--", "date", "+%s%N")
	require.Equal(p.t, 0, r.code(), "the rival: %s", r.out)
	n, err := strconv.ParseInt(strings.TrimSpace(r.out.String()), 10, 64)
	require.NoError(p.t, err)
	return time.Unix(0, n)
}

// It ends when it was to end, and says what is known: not that the key is held.
func TestAWaitEndsInTimeThoughTheServerIsSilent(t *testing.T) {
	p := newProgram(t)
	_, err := p.owner("billing-7").Acquire(t.Context(), "k")
	require.NoError(t, err)
	proxy := faultproxy.New(t, testserver.URI(t))
	a := p.through(proxy).start("run", "--wait", "3s", "-E", "0", "k", "--", "true")
	begun := time.Now()
	require.Eventually(t, func() bool { return strings.Contains(p.prints("show", "k"), "waiter\t") }, pace.Of(10*time.Second), 20*time.Millisecond)
	proxy.Silence()
	assert.Equal(t, exitUnreachable, a.code())
	assert.Less(t, time.Since(begun), pace.Of(6*time.Second))
	assert.Regexp(t, `^mongolock: k was held by billing-7 .*, and the server no longer answers\n$`, a.out.String())
}

// The password stays out of the command's environment, unless it is asked for.
func TestACommandDoesNotInheritThePassword(t *testing.T) {
	secret := "mongodb://ada:hunter2@h/?authSource=admin"
	for uri, want := range map[string]int{secret: 0, "mongodb://h/": 1} {
		t.Setenv("MONGOLOCK_URI", uri)
		t.Setenv("MONGODB_URI", uri)
		task := &task{taskFlags: &taskFlags{}}
		assert.Equal(t, 2*want, strings.Count(strings.Join(task.environment(), "\n"), uri), uri)
		task.PassURI = true
		assert.Equal(t, 2, strings.Count(strings.Join(task.environment(), "\n"), uri), uri)
	}
}

func TestAServerThatIsSilentIsTold(t *testing.T) {
	p := newProgram(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	a := p.start("--uri", "mongodb://"+listener.Addr().String(), "ls")
	b := p.start("--uri", "mongodb://"+listener.Addr().String()+"/?replicaSet=rs7", "ls")
	assert.Equal(t, exitUnreachable, a.code())
	assert.Contains(t, a.out.String(), listener.Addr().String()+" is silent, or no primary")
	assert.Equal(t, exitUnreachable, b.code())
	assert.Contains(t, b.out.String(), "or not of the replica set rs7")
}
