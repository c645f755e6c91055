//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/pace"
)

// A fakeGroup is a process group that ends when it was alive for a number of looks.
type fakeGroup struct {
	looks int
	sent  []syscall.Signal
}

func (g *fakeGroup) signal(all ...syscall.Signal) {
	g.sent = append(g.sent, all...)
}

func (g *fakeGroup) look() (bool, []string) {
	g.looks--
	return g.looks >= 0, nil
}

// lost is a lease that is lost.
type lost struct{ over chan struct{} }

func (lost) Err() error               { return mongolock.ErrLost }
func (l lost) Done() <-chan struct{}  { return l.over }
func (lost) Remaining() time.Duration { return 0 }

// settled ends a group whose lease ran out a while ago, and returns what was told.
func settled(t *testing.T, g group, ago time.Duration) string {
	t.Helper()
	var said bytes.Buffer
	j := &job{
		task: task{taskFlags: &taskFlags{Margin: 20 * time.Millisecond}, key: "k"}, lease: lost{}, t: teller{w: &said, key: "k"},
		pid: 4711, members: g, guard: &guardian{lease: lost{}, until: machineTime() - ago},
	}
	j.settle(nil)
	return said.String()
}

// The process slept past the deadline, and SIGKILL was sent a moment ago.
func TestAProcessThatWakesLateDoesNotSayThatSIGKILLEndsNothing(t *testing.T) {
	t.Parallel()
	g := &fakeGroup{looks: 20} // some 40 ms
	assert.Empty(t, settled(t, g, time.Hour))
	assert.Contains(t, g.sent, syscall.SIGKILL)
}

func TestAGroupThatSIGKILLDoesNotEndIsTold(t *testing.T) {
	t.Parallel()
	assert.Contains(t, settled(t, &fakeGroup{looks: 900}, 0), "does not end by SIGKILL")
}

// A group ID is free for others once its group is empty.
func TestTheGuardSignalsNoGroupThatWasEmptyBefore(t *testing.T) {
	t.Parallel()
	g := &fakeGroup{looks: 2}
	w := &watchman{margin: time.Millisecond, until: 1, pid: 4711, members: g}
	act := func() bool {
		_, over := w.act(time.Hour)
		return over
	}
	assert.False(t, act())
	assert.False(t, act())
	assert.Equal(t, []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT, syscall.SIGKILL, syscall.SIGKILL}, g.sent)
	assert.False(t, act(), "the holder is stopped, and may go on")
	g.looks = 1000 // the ID of another group
	for range 3 {
		act()
	}
	assert.Len(t, g.sent, 4, "it was signalled again")
	w.orphan = true
	assert.True(t, act(), "without a holder there is nothing left to guard")
}

// The holder was killed before it could tell what it had started.
func TestAGuardThatWasToldNoProcessFindsTheCommandByItsMark(t *testing.T) {
	t.Parallel()
	const mark = "of-this-test"
	command := exec.Command("sleep", "60")
	command.Env = append(os.Environ(), markName+"=."+mark)
	require.NoError(t, command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	w := &watchman{mark: mark, margin: time.Millisecond, orphan: true}
	for over := false; !over; {
		_, over = w.act(machineTime())
		time.Sleep(time.Millisecond) // real: a process ends
	}
	select {
	case err := <-ended:
		assert.ErrorContains(t, err, "signal: ")
	case <-time.After(pace.Of(10 * time.Second)):
		assert.NoError(t, command.Process.Kill())
		t.Error("it was left")
	}
}

// The signal comes at the moment when signals go to the command.
func TestASignalBeforeTheCommandIsNotLost(t *testing.T) {
	mine := make(chan os.Signal, 1)
	signal.Notify(mine, syscall.SIGTERM) // or one that comes late would end this process
	defer signal.Stop(mine)
	for range 100 {
		var a app
		a.ctx, a.caught = untilSignal()
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		<-mine // it has come
		err := hold(task{begin: func() error {
			err := a.begun()
			require.Error(t, err, "the signal")
			return err
		}}, lost{}, teller{})
		code, _ := verdict(err)
		require.Equal(t, exitSignal+int(syscall.SIGTERM), code)
		require.ErrorIs(t, &unfinished{err.(*exitError), err.(*exitError).told}, context.Canceled, "once records that it was stopped")
	}
}

// A goodLease is one whose end this process has not noticed when the guard has. It is good until the command has made a
// file, however long that takes, and a moment longer.
type goodLease struct {
	file string
	end  func() time.Time
}

func newGoodLease(file string) goodLease {
	return goodLease{file, sync.OnceValue(func() time.Time { return time.Now().Add(300 * time.Millisecond) })}
}

func (goodLease) Err() error            { return nil }
func (goodLease) Done() <-chan struct{} { return nil }
func (l goodLease) Remaining() time.Duration {
	if _, err := os.Stat(l.file); err == nil {
		return max(0, time.Until(l.end()))
	}
	return time.Minute
}

// Which of the two notices it first is a matter of milliseconds: a process that was stopped wakes, and the command has
// ended, but the lease's timer has not fired.
func TestACommandThatTheGuardHasEndedIsLost(t *testing.T) {
	runtime.LockOSThread() // see pdeathsig
	defer runtime.UnlockOSThread()
	for script, want := range map[string]int{
		"touch %s; exec sleep 60":                                         exitLost,
		"trap 'exit 3' TERM; touch %s; while :; do sleep 0.02; done":      exitLost, // it was told to end
		"trap 'exit 0' TERM; touch %s 2>&1; while :; do sleep 0.02; done": 0,        // its work is done
	} {
		var said bytes.Buffer
		file := t.TempDir() + "/begun"
		f := &taskFlags{Command: []string{"bash", "-c", fmt.Sprintf(script, file)}, TTL: time.Second, Margin: pace.Of(time.Second)}
		err := hold(task{taskFlags: f, key: "k", path: "/bin/bash", begin: func() error { return nil }}, newGoodLease(file), teller{w: &said})
		code, _ := verdict(err)
		assert.Equal(t, want, code, script)
		if want == 0 {
			continue
		}
		assert.Contains(t, said.String(), "lost k while the command ran: the guard has ended the command")
		var e *exitError
		require.ErrorAs(t, err, &e)
		assert.ErrorIs(t, &unfinished{e, e.told || e.unbegun}, context.Canceled, "once records that it was stopped, and a process that waits runs it")
	}
}
