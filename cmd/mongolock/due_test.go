//go:build linux

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sys/unix"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
	"github.com/mongolock/mongolock/internal/test/kit/testserver"
	"github.com/mongolock/mongolock/internal/test/mongo/faultproxy"
)

func TestADueTimeIsTheLastOneUpToNow(t *testing.T) {
	t.Setenv("TZ", "UTC")
	at := func(s string) time.Time {
		when, err := time.Parse("2006-01-02 15:04:05", s)
		require.NoError(t, err)
		return when
	}
	for _, c := range []struct{ expression, now, want string }{
		{"0 3 * * *", "2026-11-25 03:00:00", "2026-11-25 03:00:00"},
		{"0 3 * * *", "2026-11-25 02:59:58", "2026-11-24 03:00:00"},
		{"0 3 * * *", "2026-11-25 02:59:59", "2026-11-25 03:00:00"}, // a clock that was set back a little
		{"0 3 * * *", "2026-11-26 02:00:00", "2026-11-25 03:00:00"},
		{"* * * * *", "2026-11-25 12:34:56", "2026-11-25 12:34:00"},
		{"*/15 9-17 * * 1-5", "2026-11-28 12:00:00", "2026-11-27 17:45:00"},
		{"0 0 29 2 *", "2026-11-25 12:00:00", "2024-02-29 00:00:00"},
		{"CRON_TZ=Europe/Berlin 0 3 * * *", "2026-11-25 12:00:00", "2026-11-25 02:00:00"},
	} {
		assert.Equal(t, at(c.want), lastDue(c.expression, at(c.now)).UTC(), "%s at %s", c.expression, c.now)
	}
	assert.Zero(t, lastDue("0 3 30 2 *", at("2026-11-25 12:00:00")))
	assert.Zero(t, lastDue("nonsense", at("2026-11-25 12:00:00")))
	t.Setenv("TZ", "Asia/Kolkata")
	assert.Equal(t, at("2026-11-24 21:30:00"), lastDue("0 3 * * *", at("2026-11-25 12:00:00")).UTC(), "cron reads a crontab in the host's zone")
}

func TestADueTimeIsClaimedOnceAndNoneBeforeIt(t *testing.T) {
	p := newProgram(t)
	coll := p.database().Collection("locks.due")
	noon := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	mine := func(id string, at time.Time) bool {
		stands, err := claimDue(t.Context(), coll, "k", id, "ada", at)
		require.NoError(t, err)
		return stands.Claim == id
	}
	var won sync.Map
	var all sync.WaitGroup
	for id := range strings.SplitSeq("abcdefgh", "") {
		all.Go(func() { won.Store(id, mine(id, noon)) })
	}
	all.Wait()
	n := 0
	won.Range(func(_, v any) bool {
		if v.(bool) {
			n++
		}
		return true
	})
	assert.Equal(t, 1, n, "claims of one due time")
	assert.False(t, mine("late", noon.Add(-time.Hour)), "a due time before it")
	assert.True(t, mine("next", noon.Add(time.Hour)), "the next one")
	assert.True(t, mine("next", noon.Add(time.Hour)), "the same claim again: its reply was lost")
}

func TestAClaimWhoseReplyIsLostIsFoundOrFails(t *testing.T) {
	p := newProgram(t)
	proxy := faultproxy.New(t, testserver.URI(t))
	a := p.through(proxy)
	proxy.Silence()
	r := a.start("run", "--at", "0 3 * * *", "k", "--", "echo", "ran")
	assert.Equal(t, exitUnreachable, r.code())
	assert.NotContains(t, r.out.String(), "ran")
	b := p.start("run", "--at", "0 3 * * *", "k", "--", "echo", "ran")
	assert.Equal(t, 0, b.code())
	assert.Equal(t, "ran\n", b.out.String(), "nothing had claimed it")
}

// A host that is shut down while its claim is under way has not used the due time up.
func TestADueTimeIsGivenBackIfASignalEndsItsClaim(t *testing.T) {
	p := newProgram(t)
	proxy := faultproxy.New(t, testserver.URI(t))
	claim := proxy.On(faultproxy.Command("update").Next(1), faultproxy.SwallowReply())
	a := p.through(proxy).start("run", "--at", "0 3 * * *", "k", "--", "echo", "ran")
	select {
	case <-claim.Applied():
	case <-time.After(pace.Of(10 * time.Second)):
		require.Fail(t, "nothing was claimed")
	}
	a.signal(syscall.SIGTERM)
	assert.Equal(t, exitSignal+int(syscall.SIGTERM), a.code())
	assert.NotContains(t, a.out.String(), "ran")
	b := p.start("run", "--at", "0 3 * * *", "k", "--", "echo", "ran")
	assert.Equal(t, 0, b.code())
	assert.Equal(t, "ran\n", b.out.String(), "a claim that ran nothing stands")
}

func TestACrontabOnManyHostsRunsADueTimeOnce(t *testing.T) {
	p := newProgram(t)
	var hosts []*running
	for range 5 {
		hosts = append(hosts, p.start("run", "--at", "0 3 * * *", "nightly", "--", "echo", "ran"))
	}
	var out strings.Builder
	for _, h := range hosts {
		assert.Equal(t, 0, h.code())
		out.WriteString(h.out.String())
	}
	assert.Equal(t, "ran\n", out.String(), "of five hosts, those that do not run it are silent")
}

// A call that does not get the key has not used the due time up.
func TestADueTimeIsGivenBackIfTheKeyIsHeld(t *testing.T) {
	p := newProgram(t)
	locks, err := mongolock.New(p.database().Collection("locks"))
	require.NoError(t, err)
	defer locks.Close()
	lease, err := locks.Acquire(t.Context(), "nightly")
	require.NoError(t, err)
	for _, impatient := range [][]string{{"--try"}, {"--wait", "100ms"}, {"--try"}} {
		r := p.start(slices.Concat([]string{"run", "--at", "0 3 * * *"}, impatient, []string{"nightly", "--", "echo", "ran"})...)
		assert.Contains(t, []int{exitHeld, exitTimeout}, r.code(), "the second claims it too")
		assert.NotContains(t, r.out.String(), "ran")
	}
	require.NoError(t, lease.Release())
	for _, want := range []string{"ran\n", ""} {
		r := p.start("run", "--at", "0 3 * * *", "--try", "nightly", "--", "echo", "ran")
		assert.Equal(t, 0, r.code())
		assert.Equal(t, want, r.out.String())
	}
}

// Here the kernel refuses to start another process once the key is granted: the environment is too large.
func TestADueTimeIsGivenBackIfTheCommandIsNotStarted(t *testing.T) {
	p := newProgram(t)
	locks, err := mongolock.New(p.database().Collection("locks"))
	require.NoError(t, err)
	defer locks.Close()
	lease, err := locks.Acquire(t.Context(), "nightly")
	require.NoError(t, err)
	large := strings.Repeat("x", 100_000)
	a := (&program{t, append(p.env, "LARGE="+large, "LARGE_TOO="+large), p.dir}).start("run", "--at", "0 3 * * *", "nightly", "--", "echo", "ran")
	waits := func() bool {
		status, err := locks.Inspect(t.Context(), "nightly")
		return err == nil && len(status.Line) == 1
	}
	require.Eventually(t, waits, pace.Of(20*time.Second), 20*time.Millisecond)
	require.NoError(t, unix.Prlimit(a.Process.Pid, unix.RLIMIT_STACK, &unix.Rlimit{Cur: 512 << 10, Max: 512 << 10}, nil)) // of which a quarter
	require.NoError(t, lease.Release())
	assert.Equal(t, exitFailed, a.code())
	assert.Contains(t, a.out.String(), "the guard cannot be started")
	b := p.start("run", "--at", "0 3 * * *", "nightly", "--", "echo", "ran")
	assert.Equal(t, 0, b.code())
	assert.Equal(t, "ran\n", b.out.String(), "a claim that ran nothing stands")
}

// silent is an app without flags, whose events go to w.
func silent(w io.Writer) *app {
	return &app{cli: &cli{Output: "json"}, ctx: context.Background(), stderr: w}
}

func TestADueTimeIsGivenBackByItsOwnClaimAlone(t *testing.T) {
	p := newProgram(t)
	locks := p.database().Collection("locks")
	coll := dues(locks)
	noon := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	claim := func(id string, at time.Time) due {
		stands, err := claimDue(t.Context(), coll, "k", id, "ada", at)
		require.NoError(t, err)
		return stands
	}
	old, last := claim("old", noon), claim("last", noon.Add(time.Hour))
	require.ErrorIs(t, giveBackDue(t.Context(), coll, old), errNotClaimed)
	assert.Equal(t, "last", claim("again", last.At).Claim, "an older claim has given it back")

	var said strings.Builder
	new(runCmd).giveBack(silent(&said), locks, &last)
	assert.Contains(t, said.String(), `"event":"returned"`)
	assert.Equal(t, "last", claim("late", noon).Claim, "what was decided before it")
	assert.Equal(t, "again", claim("again", last.At).Claim)
}

// Whoever reads the events is not told that a due time came back if that is not known.
func TestADueTimeThatIsNotGivenBackIsTold(t *testing.T) {
	p := newProgram(t)
	var late strings.Builder // a claim that was not answered, and may land after this
	new(runCmd).giveBack(silent(&late), p.database().Collection("locks"), &due{Key: "k", Claim: "c", At: time.Now()})
	assert.Contains(t, late.String(), `"event":"unreturned"`)

	gone, err := mongo.Connect(options.Client().ApplyURI(testserver.URI(t)))
	require.NoError(t, err)
	require.NoError(t, gone.Disconnect(t.Context()))
	var said strings.Builder
	new(runCmd).giveBack(silent(&said), gone.Database(p.database().Name()).Collection("locks"), &due{Key: "k", Claim: "c", At: time.Now()})
	assert.Contains(t, said.String(), `"event":"unreturned"`)
	assert.NotContains(t, said.String(), `"event":"returned"`)
}

// The control: without --at, hosts that come one after the other run it again.
func TestControlWithoutADueTimeALateHostRunsTheJobAgain(t *testing.T) {
	p := newProgram(t)
	for range 2 {
		r := p.start("run", "--try", "nightly", "--", "echo", "ran")
		assert.Equal(t, 0, r.code())
		assert.Equal(t, "ran\n", r.out.String())
	}
}

func TestANoteHasTheWordsBeforeTheFirstOptionAndNoSecret(t *testing.T) {
	t.Parallel()
	for want, command := range map[string][]string{
		"python3 report.py …":          {"python3", "report.py", "--password", "secret"},
		"python3 manage.py import a":   {"python3", "manage.py", "import", "a"},
		"mysql …":                      {"mysql", "-psecret"},
		"bash …":                       {"bash", "-c", "curl https://user:secret@host"},
		"env …":                        {"env", "PASSWORD=secret", "x"},
		"curl …":                       {"curl", "https://user:secret@host"},
		"./report.sh":                  {"./report.sh"},
		strings.Repeat("x", 199) + "…": {strings.Repeat("x", 250)},
	} {
		assert.Equal(t, want, noteOf(command))
	}
}

func TestTheZoneOfTheHostIsNamedOrAskedFor(t *testing.T) {
	for tz, want := range map[string]string{
		":Europe/Berlin": "Europe/Berlin", "/usr/share/zoneinfo/Europe/Berlin": "Europe/Berlin", ":/usr/share/zoneinfo/Europe/Berlin": "Europe/Berlin",
		"": "UTC", ":": "UTC", "CET-1CEST,M3.5.0,M10.5.0/3": "", "/no/such/file": "",
	} {
		t.Setenv("TZ", tz)
		if _, err := os.Stat(strings.TrimPrefix(tz, ":")); filepath.IsAbs(strings.TrimPrefix(tz, ":")) && want != "" && err != nil {
			continue // this host has no time zone database
		}
		assert.Equal(t, want, hostZone(), tz)
		err := (&runCmd{At: "0 3 * * *"}).checkAt()
		if want != "" {
			assert.NoError(t, err, tz)
		} else {
			assert.ErrorContains(t, err, "CRON_TZ=", tz)
		}
		assert.NoError(t, (&runCmd{At: "CRON_TZ=UTC 0 3 * * *"}).checkAt(), tz)
	}
}

// Other hosts may have the interpreter that this one has not.
func TestADueTimeIsGivenBackIfTheCommandCannotBeExecuted(t *testing.T) {
	p := newProgram(t)
	require.NoError(t, os.WriteFile(p.dir+"/report", []byte("#!/usr/bin/no-such-interpreter\n"), 0o700))
	a := p.start("run", "--at", "0 3 * * *", "nightly", "--", "./report")
	assert.Equal(t, exitNotRun, a.code())
	assert.Equal(t, "mongolock: ./report: no such file or directory\n", a.out.String())
	b := p.start("run", "--at", "0 3 * * *", "nightly", "--", "echo", "ran")
	assert.Equal(t, 0, b.code())
	assert.Equal(t, "ran\n", b.out.String())
}
