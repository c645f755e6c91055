//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/pace"
)

// A browser is a headless Chromium with one page, which is told what to do in the DevTools
// protocol, over two pipes.
type browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	id      int
	session string
}

// startBrowser skips a test where there is no Chromium, or no page yet.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err == nil {
		err = built(page)
	}
	switch required := strings.Split(os.Getenv("MONGOLOCK_REQUIRE"), ","); {
	case err == nil:
	case slices.Contains(required, "chromium"):
		t.Fatalf("MONGOLOCK_REQUIRE lists chromium: %v", err)
	default:
		t.Skipf("needs chromium, and a page that is built: %v; `make test-play` builds it", err)
	}
	dir, err := os.MkdirTemp("", "mongolock-play") //nolint:usetesting // the browser's helpers write there for a moment longer
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), pace.Of(2*time.Minute))
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--remote-debugging-pipe", "--user-data-dir="+dir, "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
	read, to, err := os.Pipe()
	require.NoError(t, err)
	from, write, err := os.Pipe()
	require.NoError(t, err)
	cmd.ExtraFiles = []*os.File{read, write}
	require.NoError(t, cmd.Start())
	_, _ = read.Close(), write.Close()
	t.Cleanup(func() {
		_, _ = to.WriteString(`{"id":0,"method":"Browser.close"}` + "\x00")
		_ = cmd.Wait()
		cancel()
		_, _ = to.Close(), from.Close()
		assert.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, pace.Of(10*time.Second), 20*time.Millisecond, "its helpers still write")
	})
	b := &browser{t: t, to: to, from: bufio.NewReader(from)}
	var target struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	return b
}

// call sends a command and waits for its answer. Events of the browser meanwhile are not read.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.id++
	command := map[string]any{"id": b.id, "method": method, "params": params}
	if b.session != "" {
		command["sessionId"] = b.session
	}
	raw, err := json.Marshal(command)
	require.NoError(b.t, err)
	_, err = b.to.Write(append(raw, 0))
	require.NoError(b.t, err)
	for {
		raw, err := b.from.ReadBytes(0)
		require.NoError(b.t, err, "%s: the browser is gone, or took too long", method)
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		require.NoError(b.t, json.Unmarshal(raw[:len(raw)-1], &answer))
		if answer.ID != b.id {
			continue
		}
		require.Nil(b.t, answer.Error, "%s: %+v", method, answer.Error)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(answer.Result, result))
		}
		return
	}
}

// eval returns the value of an expression in the page; a promise is awaited.
func eval[T any](b *browser, format string, args ...any) (value T) {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	expression := fmt.Sprintf(format, args...)
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &answer)
	require.Nil(b.t, answer.ExceptionDetails, "%s: %+v", expression, answer.ExceptionDetails)
	if answer.Result.Value != nil {
		require.NoError(b.t, json.Unmarshal(answer.Result.Value, &value), expression)
	}
	return value
}

// open opens an address and waits until the page has drawn a history.
func (b *browser) open(address string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": address}, nil)
	b.drawn()
}

// drawn waits until the page has drawn what it was asked for.
func (b *browser) drawn() {
	b.t.Helper()
	state := eval[string](b, `new Promise((done) => {
		const look = () => {
			const state = document.documentElement?.dataset.state;
			state && state !== "running" ? done(state) : setTimeout(look, 10);
		};
		look();
	})`)
	require.Equal(b.t, "drawn", state, "%s", eval[string](b, `document.getElementById("verdict").textContent`))
}

// used returns how much processor time all processes of the browser have used.
func (b *browser) used() (total time.Duration) {
	b.t.Helper()
	page := b.session
	b.session = ""
	var all struct{ ProcessInfo []struct{ CPUTime float64 } }
	b.call("SystemInfo.getProcessInfo", nil, &all)
	b.session = page
	for _, p := range all.ProcessInfo {
		total += time.Duration(p.CPUTime * float64(time.Second))
	}
	return total.Round(time.Millisecond)
}

func (b *browser) press(key string) {
	b.t.Helper()
	code := map[string]int{"Tab": 9, "Enter": 13, "ArrowRight": 39}[key]
	event := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code}
	if key == "Enter" {
		event["text"] = "\r"
	}
	b.call("Input.dispatchKeyEvent", event, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
}

// size makes the page as wide as a screen, and sets the colours that its reader prefers.
func (b *browser) size(width int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// picture returns the whole page as a PNG, down to an element.
func (b *browser) picture(until string) []byte {
	b.t.Helper()
	var shot struct{ Data string }
	box := eval[map[string]float64](b, `({width: innerWidth, height: document.querySelector(%q).getBoundingClientRect().bottom + scrollY + 12})`, until)
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": box["width"], "height": box["height"], "scale": 1}}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(b.t, err)
	return png
}
