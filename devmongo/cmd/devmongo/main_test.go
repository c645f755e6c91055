package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/devmongo/internal/lack"
	"github.com/mongolock/mongolock/devmongo/internal/servers"
)

// The test's own program stands for devmongo, so that signals and exit codes are real.
const beDevmongo = "DEVMONGO_TEST_BE_THE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(beDevmongo) != "" {
		os.Unsetenv(beDevmongo)
		main()
	}
	os.Exit(m.Run())
}

func TestExecPassesTheServerToItsCommandAndReturnsItsExitCode(t *testing.T) {
	cmd := command(t, "exec", "--kind", "ferretdb", "--", "sh", "-c", `env; exit 7`)
	var warnings strings.Builder
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
		t.Errorf("not the command's exit code: %v", err)
	}
	env := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = value
	}
	if !strings.HasPrefix(env[servers.EnvURI], "mongodb://127.0.0.1:") ||
		env[servers.EnvKind] != "ferretdb" || env[servers.EnvHas] != "" ||
		!strings.HasPrefix(env[servers.EnvControl], "http://127.0.0.1:") {
		t.Errorf("the environment: %v", env)
	}
	if lines := strings.Count(warnings.String(), "\n"); lines != 1 ||
		!strings.HasPrefix(warnings.String(), "devmongo: using ferretdb, which cannot show contention") {
		t.Errorf("not one line that names the server and what it cannot show: %q", warnings.String())
	}
}

func TestExecFailsLikeAShellIfTheCommandCannotRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(file, []byte("words"), 0o600))
	for name, want := range map[string]int{"no-such-command-anywhere": 127, "./no-such-file": 127, file: 126} {
		err := command(t, "exec", "--kind", "ferretdb", "--", name).Run()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != want {
			t.Errorf("%s: %v, want %d", name, err, want)
		}
	}
}

func TestWrongArgumentsPrintTheUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"exec"}, {"exec", "--"}, {"serve", "now"}, {"which", "one"}, {"help"}, {"exec", "--no-such-flag"}} {
		out, err := command(t, args...).CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != exitUsage {
			t.Errorf("%v: %v", args, err)
		}
		if !strings.Contains(string(out), "usage: devmongo exec") {
			t.Errorf("%v: %s", args, out)
		}
	}
}

func TestAnInterruptedExecEndsItsCommandAndItsServers(t *testing.T) {
	hangups := make(chan os.Signal, 1) // under nohup the command would ignore hangups as this program does
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for _, sent := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sent.String(), func(t *testing.T) {
			temp := t.TempDir()
			// The command has a child of its own, as go test has.
			cmd := command(t, "exec", "--kind", "ferretdb", "--", "sh", "-c",
				`echo $MONGODB_URI; echo $MONGOLOCK_CONTROL; sh -c 'echo $$; exec sleep 600'`)
			cmd.Env = append(cmd.Env, "TMPDIR="+temp)
			lines := startWithLines(t, cmd)
			uri, control := lines(), lines()
			var grandchild int
			fmt.Sscan(lines(), &grandchild)
			another := newServer(t, control)

			require.NoError(t, cmd.Process.Signal(sent))
			err := cmd.Wait()
			const terminated = 128 + int(syscall.SIGTERM)
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != terminated {
				t.Errorf("%v, want %d", err, terminated)
			}
			for _, uri := range []string{uri, another.URI} {
				if listens(t, uri) {
					t.Errorf("%s still accepts connections", uri)
				}
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			awaitGone(t, grandchild)
		})
	}
}

func TestAServerDiesWithItsKilledExec(t *testing.T) {
	needSecantus(t)
	if _, err := os.Stat("/proc/self"); err != nil {
		lack.Skip(t, "linux", err)
	}
	cmd := command(t, "exec", "--kind", "secantus", "--", "sh", "-c", `echo $MONGODB_URI; exec sleep 2`)
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir()) // a killed exec cannot remove the data
	uri := startWithLines(t, cmd)()
	if !listens(t, uri) {
		t.Fatal("no server listens at", uri)
	}
	cmd.Process.Kill()
	cmd.Process.Wait()
	for deadline := time.Now().Add(5 * time.Second); listens(t, uri); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server outlives its devmongo by five seconds")
		}
	}
}

func TestExecInsideExecUsesTheOuterServerAndControl(t *testing.T) {
	const show = `echo $MONGOLOCK_KIND $MONGODB_URI $MONGOLOCK_CONTROL`
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := command(t, "exec", "--kind", "ferretdb", "--", "sh", "-c",
		show+"; "+beDevmongo+`=1 "$0" exec -- sh -c '`+show+`'`, self).Output()
	require.NoError(t, err)
	outside, inside, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if outside != inside || !strings.HasPrefix(outside, "ferretdb ") {
		t.Errorf("outside %s\ninside  %s", outside, inside)
	}
}

func TestServePrintsTheURIAndRunsUntilASignal(t *testing.T) {
	cmd := command(t, "serve", "--kind", "ferretdb")
	uri := startWithLines(t, cmd)()
	if !listens(t, uri) {
		t.Error("no server listens at", uri)
	}
	cmd.Process.Signal(os.Interrupt)
	assert.NoError(t, cmd.Wait())
	if listens(t, uri) {
		t.Error("a server still listens at", uri)
	}
}

func TestServeUsesTheGivenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	taken := command(t, "serve", "--kind", "ferretdb", "--port", fmt.Sprint(port))
	if out, err := taken.CombinedOutput(); err == nil || !strings.Contains(string(out), "in use") {
		t.Errorf("a port that is in use: %v: %s", err, out)
	}
	l.Close()
	uri := startWithLines(t, command(t, "serve", "--kind", "ferretdb", "--port", fmt.Sprint(port)))()
	if want := fmt.Sprintf("mongodb://127.0.0.1:%d/", port); uri != want {
		t.Errorf("%s, want %s", uri, want)
	}
}

func TestWhichMarksTheKindThatStartWouldUse(t *testing.T) {
	cmd := command(t, "which")
	cmd.Env = append(cmd.Env, servers.EnvURI+"=mongodb://127.0.0.1:1/")
	out, err := cmd.Output()
	require.NoError(t, err)
	if !strings.HasPrefix(string(out), "* external  yes\n") || !strings.Contains(string(out), "  ferretdb  yes\n") {
		t.Errorf("%s", out)
	}
}

func TestATestCanKillStepDownAndRestartAServerOfItsOwn(t *testing.T) {
	needSecantus(t)
	c := controlOver(t, servers.Secantus)
	own := newServer(t, c.url)
	if own.URI == c.shared.URI() || own.Kind != servers.Secantus || !slices.Equal(own.Has, c.shared.Capabilities()) {
		t.Errorf("the new server: %+v", own)
	}
	its := c.url + "/servers/" + own.ID
	post(t, its+"/stepdown?seconds=1", http.StatusNoContent)
	post(t, its+"/kill", http.StatusNoContent)
	if listens(t, own.URI) {
		t.Error("it was killed and still accepts connections")
	}
	if !listens(t, c.shared.URI()) {
		t.Error("the shared server ended, too")
	}
	post(t, its+"/kill", http.StatusInternalServerError)
	post(t, its+"/restart", http.StatusNoContent)
	if !listens(t, own.URI) {
		t.Error("it was restarted and accepts no connections")
	}
	request(t, http.MethodDelete, its, http.StatusNoContent)
	if listens(t, own.URI) {
		t.Error("it was ended and still accepts connections")
	}
	post(t, its+"/kill", http.StatusNotFound)

	post(t, c.url+"/kill", http.StatusNoContent)
	post(t, c.url+"/restart", http.StatusNoContent)
	if !listens(t, c.shared.URI()) {
		t.Error("the shared server did not restart")
	}
	if body := post(t, c.url+"/servers?auth=1", http.StatusOK); !strings.Contains(body, "root:") {
		t.Errorf("the URI of a server with users has none: %s", body)
	}
}

func TestTheEndOfTheControlWaitsForAStartToCleanUp(t *testing.T) {
	needSecantus(t)
	c := controlOver(t, servers.Secantus)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		if response, err := http.Post(c.url+"/servers", "", nil); err == nil {
			response.Body.Close()
		}
	})
	there := func() bool { all, _ := os.ReadDir(temp); return len(all) > 0 }
	require.Eventually(t, there, 10*time.Second, time.Millisecond)
	require.NoError(t, c.close())
	require.False(t, there(), "the start has left its data behind")
}

func TestTheControlRefusesOperationsThatTheKindCannotDo(t *testing.T) {
	c := controlOver(t, servers.FerretDB)
	post(t, c.url+"/kill", http.StatusNotImplemented)
	post(t, c.url+"/stepdown", http.StatusNotImplemented)
	post(t, c.url+"/servers?auth=1", http.StatusNotImplemented)
	post(t, c.url+"/restart", http.StatusNoContent)
	for _, seconds := range []string{"0", "-1", "1.5", "soon"} {
		post(t, c.url+"/stepdown?seconds="+seconds, http.StatusBadRequest)
	}
	post(t, c.url+"/servers/9/kill", http.StatusNotFound)
	request(t, http.MethodDelete, c.url+"/servers/9", http.StatusNotFound)
	post(t, c.url+"/unknown", http.StatusNotFound)
}

func TestTheControlNeedsTheSecretInItsPath(t *testing.T) {
	c := controlOver(t, servers.FerretDB)
	u, err := url.Parse(c.url)
	require.NoError(t, err)
	for _, path := range []string{"/restart", "/guess/restart"} {
		post(t, "http://"+u.Host+path, http.StatusNotFound)
	}
}
