//go:build unix

package system

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMongoAHolderThatWasStoppedLearnsItWhenItNextLooks(t *testing.T) {
	t.Parallel()
	r := newMongoRoom(t)
	child := r.child("holder")
	child.says()
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c := r.client()
	a := r.granted(r.inBackground(r.ctx(), c, "k"))
	time.Sleep(2 * mongoChildTTL)
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for stopped := time.Duration(0); stopped < mongoChildTTL; { // shorter ones are the machine's own
		said := strings.Fields(child.says())
		stopped, _ = time.ParseDuration(said[0])
		if over := said[1] == "true"; stopped >= mongoChildTTL && !over {
			t.Errorf("it was stopped for %v, and its context is not over", stopped)
		}
	}
	time.Sleep(100 * time.Millisecond) // what it may still send
	r.mustHold(a.lease)
	r.release(a.lease)
}
