package testchild_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/testchild"
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
		"failing": testchild.As(func(context.Context, order) error { return errors.New("no disk") }),
	})
}

func TestAChildHearsPrintsAndEnds(t *testing.T) {
	p := testchild.Start(t, "echo", order{"one"})
	assert.Equal(t, "I am one", p.Says())
	p.Tell("this")
	assert.Equal(t, "one was told this", p.Says())
	p.End()
	line, more := <-p.Saying()
	assert.False(t, more, "it printed %q after its end", line)
}

func TestAChildIsKilledAtOnce(t *testing.T) {
	p := testchild.Start(t, "echo", order{"one"})
	p.Says()
	began := time.Now()
	p.Kill()
	require.NotNil(t, p.ProcessState)
	assert.False(t, p.ProcessState.Success(), "it ended with %v", p.ProcessState)
	assert.Less(t, time.Since(began), testchild.Patience)
}

func TestAChildsErrorIsPrinted(t *testing.T) {
	for role, want := range map[string]string{"failing": "no disk", "unknown": "no such role"} {
		cmd := testchild.Command(t, role, order{})
		var printed strings.Builder
		cmd.Stderr = &printed
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Run(), &exit, role)
		assert.Equal(t, 1, exit.ExitCode(), role)
		assert.Contains(t, printed.String(), want, role)
	}
}
