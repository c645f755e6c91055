//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/pace"
)

// A browser is a headless Chromium, which is told what to do in the DevTools protocol, over two
// pipes. All tests share one, and it ends with them.
type browser struct {
	cmd  *exec.Cmd
	dir  string // its profile
	to   *os.File
	gone chan struct{} // it says nothing more

	mu      sync.Mutex // protects the rest, and writes to it
	id      int
	waiting map[int]chan<- answer
}

type answer struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }
}

var shared = sync.OnceValues(startBrowser)

var started *browser // by shared

func TestMain(m *testing.M) {
	code := m.Run()
	if started != nil {
		started.end()
	}
	os.Exit(code)
}

func startBrowser() (*browser, error) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		program, err = exec.LookPath("google-chrome")
	}
	if err != nil {
		return nil, err
	}
	if err := built(page); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mongolock-play")
	if err != nil {
		return nil, err
	}
	b := &browser{dir: dir, gone: make(chan struct{}), waiting: map[int]chan<- answer{}}
	b.cmd = exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--remote-debugging-pipe", "--user-data-dir="+dir,
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
	read, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b.to = to
	b.cmd.ExtraFiles = []*os.File{read, write}
	err = b.cmd.Start()
	_, _ = read.Close(), write.Close()
	if err != nil {
		return nil, err
	}
	started = b
	go b.listen(bufio.NewReader(from))
	return b, nil
}

// listen gives each answer to its caller, until the browser is gone. What else it tells is not read.
func (b *browser) listen(from *bufio.Reader) {
	defer close(b.gone)
	for {
		raw, err := from.ReadBytes(0)
		if err != nil {
			return
		}
		var a answer
		if json.Unmarshal(raw[:len(raw)-1], &a) != nil || a.ID == 0 {
			continue
		}
		b.mu.Lock()
		to := b.waiting[a.ID]
		delete(b.waiting, a.ID)
		b.mu.Unlock()
		if to != nil {
			to <- a
		}
	}
}

// end ends the browser and removes its profile, in which its helpers write for a moment longer.
func (b *browser) end() {
	_, _ = b.to.WriteString(`{"id":1000000000,"method":"Browser.close"}` + "\x00")
	late := time.AfterFunc(pace.Of(10*time.Second), func() { _ = b.cmd.Process.Kill() })
	_ = b.cmd.Wait()
	late.Stop()
	for range 100 {
		if os.RemoveAll(b.dir) == nil {
			return
		}
		time.Sleep(20 * time.Millisecond) // real: between two tries; the browser writes there until it is gone
	}
	fmt.Fprintln(os.Stderr, "left behind:", b.dir)
}

var errGone = errors.New("the browser is gone")

// call sends a command, to a page or to the browser itself, and waits for its answer.
func (b *browser) call(ctx context.Context, session, method string, params, result any) error {
	command := map[string]any{"method": method, "params": params}
	if session != "" {
		command["sessionId"] = session
	}
	answered := make(chan answer, 1)
	b.mu.Lock()
	b.id++
	command["id"] = b.id
	b.waiting[b.id] = answered
	raw, err := json.Marshal(command)
	if err == nil {
		_, err = b.to.Write(append(raw, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case a := <-answered:
		switch {
		case a.Error != nil:
			return errors.New(a.Error.Message)
		case result != nil:
			return json.Unmarshal(a.Result, result)
		}
		return nil
	case <-b.gone:
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A tab is a page of the browser, for one test.
type tab struct {
	*browser

	t       *testing.T
	ctx     context.Context //nolint:containedctx // of a test's helper
	session string
}

// required skips a test where no browser is asked for: the page that was built last shows the
// simulation of that time.
func required(t *testing.T) {
	t.Helper()
	if !slices.Contains(strings.Split(os.Getenv("MONGOLOCK_REQUIRE"), ","), "chromium") {
		t.Skip("needs chromium, and a page that is built: `make test-play` builds it")
	}
}

// openTab opens a page of the shared browser.
func openTab(t *testing.T) *tab {
	t.Helper()
	required(t)
	b, err := shared()
	require.NoError(t, err, "MONGOLOCK_REQUIRE lists chromium")
	ctx, cancel := context.WithTimeout(t.Context(), pace.Of(4*time.Minute))
	t.Cleanup(cancel)
	p := &tab{browser: b, t: t, ctx: ctx}
	var of struct{ BrowserContextID, TargetID, SessionID string }
	p.tell("Target.createBrowserContext", nil, &of)
	p.tell("Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": of.BrowserContextID}, &of)
	p.tell("Target.attachToTarget", map[string]any{"targetId": of.TargetID, "flatten": true}, &of)
	p.session = of.SessionID
	t.Cleanup(func() {
		_ = b.call(context.WithoutCancel(ctx), "", "Target.disposeBrowserContext", map[string]any{"browserContextId": of.BrowserContextID}, nil)
	})
	return p
}

func (p *tab) tell(method string, params map[string]any, result any) {
	p.t.Helper()
	require.NoError(p.t, p.call(p.ctx, p.session, method, params, result), method)
}

// eval returns the value of an expression in the page; a promise is awaited.
func eval[T any](p *tab, format string, args ...any) (value T) {
	p.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	expression := fmt.Sprintf(format, args...)
	p.tell("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &answer)
	require.Nil(p.t, answer.ExceptionDetails, "%s: %+v", expression, answer.ExceptionDetails)
	if answer.Result.Value != nil {
		require.NoError(p.t, json.Unmarshal(answer.Result.Value, &value), expression)
	}
	return value
}

// open opens an address and waits until the page has drawn a history.
func (p *tab) open(address string) {
	p.t.Helper()
	p.tell("Page.navigate", map[string]any{"url": address}, nil)
	p.drawn()
}

// drawn waits until the page has drawn what it was asked for.
func (p *tab) drawn() {
	p.t.Helper()
	state := eval[string](p, `new Promise((done) => {
		const look = () => {
			const state = document.documentElement?.dataset.state;
			state && state !== "running" ? done(state) : setTimeout(look, 10);
		};
		look();
	})`)
	require.Equal(p.t, "drawn", state, "%s", eval[string](p, `document.getElementById("verdict").textContent`))
}

// used returns how much processor time all processes of the browser have used.
func (p *tab) used() (total time.Duration) {
	p.t.Helper()
	var all struct{ ProcessInfo []struct{ CPUTime float64 } }
	require.NoError(p.t, p.call(p.ctx, "", "SystemInfo.getProcessInfo", nil, &all))
	for _, process := range all.ProcessInfo {
		total += time.Duration(process.CPUTime * float64(time.Second))
	}
	return total.Round(time.Millisecond)
}

func (p *tab) press(key string) {
	p.t.Helper()
	code := map[string]int{"Tab": 9, "Enter": 13, "ArrowRight": 39}[key]
	event := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code}
	if key == "Enter" {
		event["text"] = "\r"
	}
	p.tell("Input.dispatchKeyEvent", event, nil)
	p.tell("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
}

// size makes the page as wide as a screen, and sets the colours that its reader prefers.
func (p *tab) size(width int, scheme string) {
	p.t.Helper()
	p.tell("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	p.tell("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// picture returns the whole page as a PNG, down to an element.
func (p *tab) picture(until string) []byte {
	p.t.Helper()
	var shot struct{ Data string }
	box := eval[map[string]float64](p, `({width: innerWidth, height: document.querySelector(%q).getBoundingClientRect().bottom + scrollY + 12})`, until)
	p.tell("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": box["width"], "height": box["height"], "scale": 1}}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(p.t, err)
	return png
}
