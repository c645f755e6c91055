//go:build unix

package main

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const page = "../../docs/play"

var keep = flag.String("keep", "", "a folder for pictures of the page")

func served(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.FileServer(http.Dir(page)))
	t.Cleanup(s.Close)
	return s.URL + "/"
}

// violations returns what the page's judge found.
func (b *browser) violations() []string {
	b.t.Helper()
	return eval[[]string](b, `[...document.querySelectorAll("#violations button")].map((v) => v.textContent)`)
}

func TestEverySafetyTakenOutShowsAViolationAndNoneWithoutThat(t *testing.T) {
	b := startBrowser(t)
	b.open(served(t))
	assert.Empty(t, b.violations(), "the library as it is")
	assert.Contains(t, eval[string](b, `document.querySelector("#verdict.good").textContent`), "No promise is broken.")

	safeties := eval[[]string](b, `[...document.getElementById("out").options].map((o) => o.value)`)
	require.Greater(t, len(safeties), 4)
	assert.Subset(t, safeties, []string{"", "margin", "fence", "revision", "cleanup"})
	for _, out := range safeties[1:] {
		eval[any](b, `{ const out = document.getElementById("out"); out.value = %q; out.dispatchEvent(new Event("change")) }`, out)
		b.drawn()
		found := b.violations()
		assert.NotEmpty(t, found, "%s", out)
		t.Logf("%s: %v", out, found)
		assert.Contains(t, eval[string](b, `location.search`), "out="+out)
		assert.NotZero(t, eval[int](b, `document.querySelectorAll("#detail line.broken").length`), "%s: a mark in the picture", out)
		assert.NotZero(t, eval[int](b, `document.querySelectorAll("#list .violation").length`), "%s: a line in the list", out)

		eval[any](b, `document.getElementById("out").value = ""; document.getElementById("ask").requestSubmit()`)
		b.drawn()
		assert.Empty(t, b.violations(), "the seed of %s, with the safety", out)
	}
}

func TestTheNextSeedThatBreaksAPromiseIsFound(t *testing.T) {
	b := startBrowser(t)
	b.open(served(t) + "?out=margin")
	notices := eval[int](b, `Number(document.getElementById("seed").value)`)
	require.NotEmpty(t, b.violations())

	b.open(eval[string](b, `location.href.replace("seed=%d", "seed=%d")`, notices, notices-2))
	require.Empty(t, b.violations(), "two seeds before")
	eval[any](b, `document.getElementById("search").click()`)
	b.drawn()
	assert.Equal(t, notices, eval[int](b, `Number(document.getElementById("seed").value)`), "the seed between breaks nothing")
	assert.NotEmpty(t, b.violations())
}

func TestTheFirstHistoryIsDrawnIn3SecondsWithoutANetwork(t *testing.T) {
	b := startBrowser(t)
	address := served(t)
	slower, before := contention(), b.used()
	b.open(address)
	used := b.used() - before
	slower = max(slower, contention(), 1)
	took := time.Duration(eval[int](b, `Number(document.documentElement.dataset.took)`)) * time.Millisecond
	t.Logf("drawn after %v and %v of processor time, on a machine that takes %.1f times as long as an idle one", took, used, slower)
	assert.Positive(t, took)
	assert.Less(t, took.Seconds(), 3*slower)
	assert.Less(t, used, 2*3*time.Second, "what two processors have in 3 s, however busy they are")
	for _, from := range eval[[]string](b, `performance.getEntriesByType("resource").map((r) => r.name)`) {
		assert.Contains(t, from, address)
	}
}

// contention returns how much longer than its own time on a processor this process takes for
// some work, because others want the processor as well.
func contention() float64 {
	used := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began, before := time.Now(), used()
	for used()-before < 300*time.Millisecond {
		continue
	}
	return float64(time.Since(began)) / float64(used()-before)
}

func TestThePageIsUnder10MBCompressed(t *testing.T) {
	if err := built(page); err != nil {
		startBrowser(t) // which skips, and says why
	}
	var size int64
	files, err := os.ReadDir(page)
	require.NoError(t, err)
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		size += info.Size()
	}
	t.Logf("%.1f MB", float64(size)/1e6)
	assert.Less(t, size, int64(10e6))
}

func TestThePageIsUsedByKeyboard(t *testing.T) {
	b := startBrowser(t)
	b.open(served(t) + "?out=margin")
	reached := map[string]bool{}
	for range 60 {
		b.press("Tab")
		reached[eval[string](b, `document.activeElement.closest("[id]")?.id ?? ""`)] = true
	}
	for _, id := range []string{"out", "seed", "next", "search", "key", "at", "in-zoom", "out-zoom", "back", "forth", "commands", "list", "violations"} {
		assert.True(t, reached[id], "Tab reaches #%s: %v", id, reached)
	}
	for _, c := range []struct{ focus, press, changes string }{
		{"#at", "ArrowRight", "#now"},
		{"#forth", "Enter", "#now"},
		{"#in-zoom", "Enter", "#detail"},
		{"#violations li:last-child button", "Enter", "#now"},
		{"#next", "Enter", "#verdict"},
	} {
		before := eval[string](b, `document.querySelector(%q).innerHTML`, c.changes)
		eval[any](b, `document.querySelector(%q).focus()`, c.focus)
		b.press(c.press)
		b.drawn()
		assert.NotEqual(t, before, eval[string](b, `document.querySelector(%q).innerHTML`, c.changes), "%s on %s changes %s", c.press, c.focus, c.changes)
	}
}

// A screen reader is given a name for all that can be used, and the picture in words.
func TestThePageIsReadAloud(t *testing.T) {
	b := startBrowser(t)
	b.open(served(t) + "?out=fence")
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
			Properties []struct {
				Name  string
				Value struct{ Value any }
			}
		}
	}
	b.call("Accessibility.getFullAXTree", nil, &tree)
	roles := map[string]int{}
	for _, n := range tree.Nodes {
		role := fmt.Sprint(n.Role.Value)
		if n.Ignored {
			continue
		}
		roles[role]++
		focusable := false
		for _, p := range n.Properties {
			focusable = focusable || p.Name == "focusable" && p.Value.Value == true
		}
		if focusable && role != "RootWebArea" {
			assert.NotEmpty(t, n.Name.Value, "a %s has no name", role)
		}
	}
	for _, role := range []string{"heading", "status", "slider", "button", "combobox", "checkbox", "list", "listitem", "image", "main"} {
		assert.NotZero(t, roles[role], "nothing is a %s: %v", role, roles)
	}
	// Each bar of the picture is a line of the list.
	bars := eval[[]string](b, `[...document.querySelectorAll("#detail .belief title")].map((e) => e.textContent.split(",")[0].replace("holds", "has"))`)
	words := eval[string](b, `document.getElementById("list").textContent`)
	require.NotEmpty(t, bars)
	for _, bar := range bars {
		assert.Contains(t, words, bar)
	}
	assert.Contains(t, eval[string](b, `document.getElementById("at").getAttribute("aria-valuetext")`), "At ")
}

func TestThePageFitsAPhoneAndADesktopInLightAndDark(t *testing.T) {
	b := startBrowser(t)
	address := served(t) + "?out=margin"
	backgrounds := map[string]bool{}
	for _, width := range []int{390, 1200} {
		for _, scheme := range []string{"light", "dark"} {
			b.size(width, scheme)
			b.open(address)
			assert.Empty(t, eval[[]string](b, `[...document.querySelectorAll("body *:not(svg *)")]
				.filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))`), "%d px", width)
			assert.LessOrEqual(t, eval[int](b, `document.documentElement.scrollWidth`), width)
			backgrounds[eval[string](b, `getComputedStyle(document.body).backgroundColor`)] = true
			if *keep != "" {
				path := filepath.Join(*keep, fmt.Sprintf("play-%d-%s.png", width, scheme))
				require.NoError(t, os.WriteFile(path, b.picture(".legend"), 0o600))
			}
		}
	}
	assert.Len(t, backgrounds, 2, "light and dark differ")
}
