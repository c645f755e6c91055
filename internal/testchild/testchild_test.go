package testchild_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mongolock/mongolock/internal/testchild"
)

type order struct{ Name string }

func TestMain(m *testing.M) {
	testchild.Main(m, testchild.Roles{
		"echo": testchild.As(func(ctx context.Context, o order) error {
			fmt.Println("I am", o.Name)
			for {
				select {
				case line := <-testchild.Told(ctx):
					fmt.Println(o.Name, "was told", line)
				case <-ctx.Done():
					return nil
				}
			}
		}),
		"failing": testchild.As(func(context.Context, order) error { return errors.New("no paper") }),
	})
}

func TestAChildIsToldAndSaysAndEnds(t *testing.T) {
	p := testchild.Start(t, "echo", order{"one"})
	if got := p.Says(); got != "I am one" {
		t.Errorf("said %q", got)
	}
	p.Tell("this")
	if got := p.Says(); got != "one was told this" {
		t.Errorf("said %q", got)
	}
	p.End()
	if line, more := <-p.Saying(); more {
		t.Errorf("said %q after its end", line)
	}
}

func TestAChildIsKilled(t *testing.T) {
	p := testchild.Start(t, "echo", order{"one"})
	p.Says()
	began := time.Now()
	p.Kill()
	if p.ProcessState == nil || p.ProcessState.Success() || time.Since(began) > testchild.Patience {
		t.Errorf("it ended with %v", p.ProcessState)
	}
}

func TestWhatAChildFailsWithIsPrinted(t *testing.T) {
	for role, want := range map[string]string{"failing": "no paper", "nothing": "no such role"} {
		cmd := testchild.Command(t, role, order{})
		var said strings.Builder
		cmd.Stderr = &said
		exit, ok := errors.AsType[*exec.ExitError](cmd.Run())
		if !ok || exit.ExitCode() != 1 || !strings.Contains(said.String(), want) {
			t.Errorf("%s: %v, said %q", role, exit, &said)
		}
	}
}
