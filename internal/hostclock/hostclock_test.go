package hostclock_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/hostclock"
)

var tell = flag.Bool("hostclock.tell", false, "tell the host's clock and end")

func TestMain(m *testing.M) {
	if flag.Parse(); !*tell {
		os.Exit(m.Run())
	}
	c, err := hostclock.New()
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Boot(), int64(c.Now()))
}

// reads returns what another process reads, started by a command of these words before it.
func reads(t *testing.T, words ...string) (boot string, now time.Duration, err error) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	words = append(words, self, "-hostclock.tell")
	out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return "", 0, fmt.Errorf("%w: %s", err, out)
	}
	_, err = fmt.Sscan(strings.TrimSpace(string(out)), &boot, &now)
	return boot, now, err
}

func TestAllProcessesOfAHostHaveOneClock(t *testing.T) {
	c, err := hostclock.New()
	require.NoError(t, err)
	before := c.Now()
	boot, now, err := reads(t)
	require.NoError(t, err)
	assert.Equal(t, c.Boot(), boot)
	assert.Greater(t, now, before)
	assert.Less(t, now, c.Now())
}

// A day is added to the clocks of the other process.
func TestAContainerWithATimeNamespaceHasTheClockOfItsHost(t *testing.T) {
	c, err := hostclock.New()
	require.NoError(t, err)
	before := c.Now()
	boot, now, err := reads(t, "unshare", "--time", "--fork", "--boottime", "86400", "--monotonic", "86400")
	if err != nil {
		t.Skipf("this machine makes no time namespace: %v", err)
	}
	assert.Equal(t, c.Boot(), boot)
	assert.Greater(t, now, before)
	assert.Less(t, now, c.Now())
}

func TestVirtualTimeIsItsOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := hostclock.New()
		require.NoError(t, err)
		before := c.Now()
		time.Sleep(24 * time.Hour)
		assert.Equal(t, 24*time.Hour, c.Now()-before)
	})
}
