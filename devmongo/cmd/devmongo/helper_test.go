package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/devmongo/internal/lack"
	"github.com/mongolock/mongolock/devmongo/internal/servers"
)

func needSecantus(t *testing.T) {
	t.Helper()
	for _, f := range servers.Find(t.Context()) {
		if f.Kind == servers.Secantus && f.Err != nil {
			lack.Skip(t, string(f.Kind), f.Err)
		}
	}
}

// command runs devmongo as a process, outside any exec that the test may run in.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MONGO") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, beDevmongo+"=1")
	// A signal, unlike a kill, lets it stop its servers.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// startWithLines starts the process and returns a function that reads its next line of output.
func startWithLines(t *testing.T, cmd *exec.Cmd) func() string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Wait() }) // the end of the test's context ends the process
	lines := bufio.NewScanner(out)
	return func() string {
		if !lines.Scan() {
			t.Fatal("no more output:", lines.Err())
		}
		return lines.Text()
	}
}

func controlOver(t *testing.T, kind servers.Kind) *control {
	t.Helper()
	shared, err := servers.Start(t.Context(), servers.Config{Kind: kind})
	require.NoError(t, err)
	t.Cleanup(func() { shared.Stop() })
	c, err := startControl(shared, servers.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { c.close() })
	return c
}

func newServer(t *testing.T, control string) (s started) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(post(t, control+"/servers", http.StatusOK)), &s))
	return s
}

func post(t *testing.T, url string, want int) string {
	t.Helper()
	return request(t, http.MethodPost, url, want)
}

func request(t *testing.T, method, url string, want int) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	if response.StatusCode != want {
		t.Errorf("%s %s: %d, want %d: %s", method, url, response.StatusCode, want, body)
	}
	return string(body)
}

func listens(t *testing.T, uri string) bool {
	t.Helper()
	u, err := url.Parse(uri)
	require.NoError(t, err)
	conn, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("the command's child %d still runs", pid)
		}
	}
}
