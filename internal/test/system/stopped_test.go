//go:build unix

package system

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAStoppedProcessFindsItsLeaseLostWhenItContinues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	child := f.child("holder")
	child.says()
	require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
	c := f.client()
	a := f.granted(f.inBackground(f.ctx(), c, "k"))
	time.Sleep(2 * childTTL()) // real: its lease runs out
	require.NoError(t, child.Process.Signal(syscall.SIGCONT))
	for stopped := time.Duration(0); stopped < childTTL(); { // shorter stops are the machine's own
		said := strings.Fields(child.says())
		stopped, _ = time.ParseDuration(said[0])
		if over := said[1] == "true"; stopped >= childTTL() && !over {
			t.Errorf("it was stopped for %v, and its context is not over", stopped)
		}
	}
	time.Sleep(100 * time.Millisecond) // for what it may still send
	f.mustHold(a.lease)
	f.release(a.lease)
}
