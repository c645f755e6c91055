//go:build unix

package main

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/internal/test/kit/cputime"
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
func (p *tab) violations() []string {
	p.t.Helper()
	return eval[[]string](p, `[...document.querySelectorAll("#violations button")].map((v) => v.textContent)`)
}

func (p *tab) verdict() string {
	p.t.Helper()
	return eval[string](p, `document.getElementById("verdict").textContent`)
}

func TestThePageOpensOnABrokenPromiseAndSaysWhatWentWrong(t *testing.T) {
	t.Parallel()
	p := openTab(t)
	p.open(served(t))
	assert.Contains(t, p.verdict(), "A promise is broken, 3 times. Without the margin, two clients hold one lock at the same time.")
	assert.NotEmpty(t, p.violations())

	// A search leaves nothing of that verdict.
	assert.Equal(t, "Looking for a seed that breaks a promise… 0 violations", eval[string](p, `(document.getElementById("search").click(),
		document.getElementById("verdict").textContent + " " + document.querySelectorAll("#violations li").length + " violations")`))
	assert.Equal(t, "0.25", eval[string](p, `getComputedStyle(document.getElementById("picture")).opacity`))
	eval[any](p, `document.getElementById("search").click()`)
	assert.Equal(t, "Stopped.", p.verdict())
}

// unexplained returns the kinds of marks that are drawn, and of which the legend has no sample.
func (p *tab) unexplained() []string {
	p.t.Helper()
	return eval[[]string](p, `[...new Set([...document.querySelectorAll("#whole [class], #detail [class]")].flatMap((e) => [...e.classList]))]
		.filter((c) => !/^(c[0-3]|lane|grid|tick|name|label|on|server)$/.test(c) && !document.querySelector(".legend ." + c))`)
}

func TestEverySafetyTakenOutShowsAViolationAndNoneWithoutThat(t *testing.T) {
	t.Parallel()
	p := openTab(t)
	p.open(served(t) + "?out=")
	assert.Empty(t, p.violations(), "the library as it is")
	assert.Contains(t, eval[string](p, `document.querySelector("#verdict.good").textContent`), "No promise is broken.")

	safeties := eval[[]string](p, `[...document.getElementById("out").options].map((o) => o.value)`)
	require.Greater(t, len(safeties), 4)
	assert.Subset(t, safeties, []string{"", "margin", "fence", "revision", "cleanup"})
	for _, out := range safeties[1:] {
		eval[any](p, `{ const out = document.getElementById("out"); out.value = %q; out.dispatchEvent(new Event("change")) }`, out)
		p.drawn()
		found := p.violations()
		assert.NotEmpty(t, found, "%s", out)
		t.Logf("%s: %v", out, found)
		assert.Contains(t, eval[string](p, `location.search`), "out="+out)
		assert.NotZero(t, eval[int](p, `document.querySelectorAll("#detail line.broken").length`), "%s: a mark in the picture", out)
		assert.NotZero(t, eval[int](p, `document.querySelectorAll("#list .violation").length`), "%s: a line in the list", out)
		assert.Empty(t, p.unexplained(), "%s: marks without a legend", out)
		eval[any](p, `for (let i = 0; i < 12; i++) document.getElementById("out-zoom").click()`)
		assert.Empty(t, p.unexplained(), "%s: marks without a legend, in all the history", out)

		eval[any](p, `document.getElementById("out").value = ""; document.getElementById("ask").requestSubmit()`)
		p.drawn()
		assert.Empty(t, p.violations(), "the seed of %s, with the safety", out)
	}
}

func TestTheNextSeedThatBreaksAPromiseIsFound(t *testing.T) {
	t.Parallel()
	p := openTab(t)
	p.open(served(t) + "?out=margin")
	notices := eval[int](p, `Number(document.getElementById("seed").value)`)
	require.NotEmpty(t, p.violations())

	p.open(eval[string](p, `location.href.replace("seed=%d", "seed=%d")`, notices, notices-2))
	require.Empty(t, p.violations(), "two seeds before")
	eval[any](p, `document.getElementById("search").click()`)
	p.drawn()
	assert.Equal(t, notices, eval[int](p, `Number(document.getElementById("seed").value)`), "the seed between breaks nothing")
	assert.NotEmpty(t, p.violations())
}

// The one test that is not parallel: it has the machine to itself, and runs first.
func TestTheFirstHistoryIsDrawnIn3SecondsWithoutANetwork(t *testing.T) {
	p := openTab(t)
	address := served(t)
	for try := 1; ; try++ {
		slower, before := contention(t), p.used()
		p.open(address)
		used := p.used() - before
		slower = max(slower, contention(t), 1)
		t.Logf("%s; %v of processor time, on a machine that takes %.1f times as long as an idle one", p.marks(), used, slower)
		if p.after("drawn") < 3*slower {
			shared := min(slower, 1.5) // those who share a core slow each other down
			assert.Less(t, used.Seconds(), 2*3*shared, "what two processors have in 3 s, however busy they are")
			break
		}
		require.Less(t, try, 3, "thrice too late")
	}
	for _, from := range eval[[]string](p, `performance.getEntriesByType("resource").map((r) => r.name)`) {
		assert.Contains(t, from, address)
	}
}

func TestControlAProgramThatArrivesLateIsDrawnLate(t *testing.T) {
	t.Parallel()
	p := openTab(t)
	const late = 3 * time.Second
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/"+program {
			time.Sleep(late)
		}
		http.FileServer(http.Dir(page)).ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	p.open(s.URL)
	assert.Greater(t, p.after("fetched"), late.Seconds(), p.marks())
	assert.Greater(t, p.after("drawn"), late.Seconds(), p.marks())
}

// after returns after how many seconds the page first reached a mark.
func (p *tab) after(mark string) float64 {
	p.t.Helper()
	return eval[float64](p, `performance.getEntriesByName(%q)[0].startTime / 1000`, mark)
}

// marks tells when the page reached what, up to its first history.
func (p *tab) marks() string {
	p.t.Helper()
	return eval[string](p, `performance.getEntriesByType("mark").sort((a, b) => a.startTime - b.startTime)
		.map((m) => m.name + " after " + Math.round(m.startTime) + " ms").join(", ")`)
}

// contention returns how much longer than its own time on a processor this process takes for
// some work, because others want the processor as well.
func contention(t testing.TB) float64 {
	t.Helper()
	began, before := time.Now(), cputime.Used(t)
	for cputime.Used(t)-before < 300*time.Millisecond {
		continue
	}
	return float64(time.Since(began)) / float64(cputime.Used(t)-before)
}

func TestThePageIsUnder10MBCompressed(t *testing.T) {
	required(t)
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
	t.Parallel()
	p := openTab(t)
	p.open(served(t) + "?out=margin")
	reached := map[string]bool{}
	for range 60 {
		p.press("Tab")
		reached[eval[string](p, `document.activeElement.closest("[id]")?.id ?? ""`)] = true
	}
	for _, id := range []string{"out", "seed", "next", "search", "key", "at", "in-zoom", "out-zoom", "back", "forth", "commands", "list", "violations"} {
		assert.True(t, reached[id], "Tab reaches #%s: %v", id, reached)
	}
	for _, c := range []struct{ focus, press, changes string }{
		{"#at", "ArrowRight", "#now"},
		{"#forth", "Enter", "#now"},
		{"#back", "Enter", "#spoken"},
		{"#in-zoom", "Enter", "#detail"},
		{"#violations li:last-child button", "Enter", "#now"},
		{"#next", "Enter", "#verdict"},
	} {
		before := eval[string](p, `document.querySelector(%q).innerHTML`, c.changes)
		eval[any](p, `document.querySelector(%q).focus()`, c.focus)
		p.press(c.press)
		p.drawn()
		assert.NotEqual(t, before, eval[string](p, `document.querySelector(%q).innerHTML`, c.changes), "%s on %s changes %s", c.press, c.focus, c.changes)
	}
}

// A screen reader is given a name for all that can be used, and the picture in words.
func TestThePageIsReadAloud(t *testing.T) {
	t.Parallel()
	p := openTab(t)
	p.open(served(t) + "?out=fence")
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
	p.tell("Accessibility.getFullAXTree", nil, &tree)
	roles := map[string]int{}
	for _, n := range tree.Nodes {
		role := fmt.Sprint(n.Role.Value)
		if n.Ignored {
			continue
		}
		roles[role]++
		focusable := false
		for _, is := range n.Properties {
			focusable = focusable || is.Name == "focusable" && is.Value.Value == true
		}
		if focusable && role != "RootWebArea" {
			assert.NotEmpty(t, n.Name.Value, "a %s has no name", role)
		}
	}
	for _, role := range []string{"heading", "status", "slider", "button", "combobox", "checkbox", "list", "listitem", "image", "main"} {
		assert.NotZero(t, roles[role], "nothing is a %s: %v", role, roles)
	}
	// Each bar of the picture is a line of the list.
	bars := eval[[]string](p, `[...document.querySelectorAll("#detail .belief title")].map((e) => e.textContent.split(",")[0].replace("holds", "has"))`)
	words := eval[string](p, `document.getElementById("list").textContent`)
	require.NotEmpty(t, bars)
	for _, bar := range bars {
		assert.Contains(t, words, bar)
	}
	assert.Contains(t, eval[string](p, `document.getElementById("at").getAttribute("aria-valuetext")`), "At ")
}

func TestThePageFitsAPhoneAndADesktopInLightAndDark(t *testing.T) {
	t.Parallel()
	p := openTab(t)
	address := served(t) + "?out=margin"
	backgrounds := map[string]bool{}
	for _, width := range []int{390, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			p.size(width, scheme)
			p.open(address)
			assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll("body *:not(svg *)")]
				.filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))`), "%d px", width)
			assert.LessOrEqual(t, eval[int](p, `document.documentElement.scrollWidth`), width)
			backgrounds[eval[string](p, `getComputedStyle(document.body).backgroundColor`)] = true
			if *keep != "" {
				path := filepath.Join(*keep, fmt.Sprintf("play-%d-%s.png", width, scheme))
				require.NoError(t, os.WriteFile(path, p.picture(".legend"), 0o600))
			}
		}
	}
	assert.Len(t, backgrounds, 2, "light and dark differ")
}
