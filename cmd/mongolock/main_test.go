//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/testserver"
)

func TestMain(m *testing.M) {
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue { // most tests wait
		_ = parallel.Value.Set("8")
	}
	testscript.Main(m, map[string]func(){"mongolock": main, guardName: main})
}

// Each script is one claim, written as what a user types and sees.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/script",
		Setup: setup(t),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":   code,
			"until":  until,
			"within": within,
			"count":  count,
		},
		Condition: condition,
	})
}

// setup gives a script a database of its own.
func setup(t *testing.T) func(*testscript.Env) error {
	uri, client := testserver.URI(t), testserver.Client(t) // here: a test that skips in a script would panic
	return func(env *testscript.Env) error {
		db := "cli_" + strings.ToLower(rand.Text()[:10])
		env.Setenv("MONGODB_URI", uri)
		env.Setenv("MONGOLOCK_DB", db)
		env.Defer(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = client.Database(db).Drop(ctx)
		})
		return nil
	}
}

// code N CMD …: the command ends with that exit code.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N cmd …")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = statusOf(exit.ProcessState)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// statusOf is the exit code as a shell shows it.
func statusOf(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return state.ExitCode()
}

// until PATTERN CMD …: the command prints what matches it, some time within ten seconds.
func until(ts *testscript.TestScript, neg bool, args []string) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_ = ts.Exec(args[1], args[2:]...)
		if matches(ts.ReadFile("stdout"), args[0]) != neg {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("never printed %q", args[0])
		}
	}
}

// within DURATION CMD …: the command ends in time, however it ends.
func within(ts *testscript.TestScript, neg bool, args []string) {
	most, err := time.ParseDuration(args[0])
	ts.Check(err)
	begun := time.Now()
	_ = ts.Exec(args[1], args[2:]...)
	if took := time.Since(begun); took > most != neg {
		ts.Fatalf("took %v", took)
	}
}

// count N: the last command printed so many lines.
func count(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := strings.Count(ts.ReadFile("stdout"), "\n"); got != want != neg {
		ts.Fatalf("%d lines, want %d", got, want)
	}
}

// condition is what stands in brackets: [stepdown] and the like are capabilities of the
// server. One that MONGOLOCK_REQUIRE lists must be there.
func condition(name string) (bool, error) {
	if !testserver.Has(name) && strings.Contains(","+os.Getenv("MONGOLOCK_REQUIRE")+",", ","+name+",") {
		return false, fmt.Errorf("needs %s, which MONGOLOCK_REQUIRE lists", name)
	}
	return testserver.Has(name), nil
}

// matches reports whether a text has a part that matches a pattern.
func matches(text, pattern string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// A file's name need not be UTF-8.
func TestAnArgumentReachesTheCommandAsItWasTyped(t *testing.T) {
	c := &cli{}
	k, err := parser(c, io.Discard, io.Discard)
	require.NoError(t, err)
	_, err = k.Parse([]string{"run", "k", "--", "rm", "a\xffb"})
	require.NoError(t, err)
	assert.Equal(t, []string{"rm", "a\xffb"}, c.Run.Command)
}

// It may pass, and whoever calls this again should: 64 is what is not tried again.
func TestANameServersErrorIsNotWrongUsage(t *testing.T) {
	_, _, err := (&connection{source: "--uri", URI: "mongodb+srv://nohost.invalid"}).options()
	code, _ := verdict(err)
	assert.Equal(t, exitUnreachable, code, "%v", err)
}
