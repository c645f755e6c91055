package pages_test

import (
	"go/doc"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages returns the Markdown files of the repository, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := filesEndingIn(t, ".md")
	require.Contains(t, all, "README.md")
	require.Contains(t, all, "docs/internals/design.md")
	return all
}

// filesEndingIn returns the texts of the repository's own files whose names end in suffix,
// by path.
func filesEndingIn(t *testing.T, suffix string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") && path != ".github" || d.Name() == "testdata" || d.Name() == "bin"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		text, err := os.ReadFile(path)
		all[filepath.ToSlash(path)] = string(text)
		return err
	})
	require.NoError(t, err)
	return all
}

// linesWith returns those lines of a text that have a part: the race detector makes a regular
// expression take half a minute for all files.
func linesWith(text, part string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			b.WriteString(line)
		}
	}
	return b.String()
}

var (
	goBlock  = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	anyBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
)

func TestEveryLinkInThePagesHasATarget(t *testing.T) {
	all := pages(t)
	for page, text := range all {
		for _, l := range link.FindAllStringSubmatch(anyBlock.ReplaceAllString(text, ""), -1) {
			target, anchor, _ := strings.Cut(l[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := page
			if target != "" {
				file = filepath.ToSlash(filepath.Join(filepath.Dir(page), target))
			}
			_, err := os.Stat(file)
			assert.NoError(t, err, "%s links to %s", page, l[1])
			if anchor != "" {
				assert.Contains(t, anchors(all[file]), anchor, "%s links to %s", page, l[1])
			}
		}
	}
}

// anchors returns the names that GitHub gives to the headings of a page.
func anchors(page string) []string {
	var all []string
	for _, h := range heading.FindAllStringSubmatch(anyBlock.ReplaceAllString(page, ""), -1) {
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, h[1]))
	}
	return all
}

// Comments and pages cite a page by its sections: "design.md §4.3".
func TestEverySectionThatIsCitedExists(t *testing.T) {
	all := pages(t)
	pathOf := make(map[string]string)
	for path := range all {
		if strings.HasPrefix(path, "docs/") && !strings.HasSuffix(path, "README.md") {
			pathOf[filepath.Base(path)] = path
		}
	}
	cited := regexp.MustCompile(`([a-z-]+\.md)(?:\)|\]\([^)]*\))? §(\d+(?:\.\d+)?)`)
	found := 0
	for _, texts := range []map[string]string{all, filesEndingIn(t, ".go"), filesEndingIn(t, "golangci.yml")} {
		for file, text := range texts {
			for _, c := range cited.FindAllStringSubmatch(linesWith(text, "§"), -1) {
				found++
				section := regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(c[2]) + `\.? `)
				assert.True(t, section.MatchString(all[pathOf[c[1]]]), "%s cites %s §%s", file, c[1], c[2])
			}
		}
	}
	assert.Greater(t, found, 10, "citations found")
}

func TestEveryTestThatThePagesNameExists(t *testing.T) {
	var declared []string
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, text := range filesEndingIn(t, "_test.go") {
		for _, f := range declaration.FindAllStringSubmatch(text, -1) {
			declared = append(declared, f[1])
		}
	}
	named := regexp.MustCompile("`(Test[\\w…]+)`") // … stands for the rest of the name
	for page, text := range pages(t) {
		for _, n := range named.FindAllStringSubmatch(text, -1) {
			name := regexp.MustCompile("^" + strings.ReplaceAll(n[1], "…", `\w*`) + "$")
			assert.True(t, slices.ContainsFunc(declared, name.MatchString), "%s names %s", page, n[1])
		}
	}
}

func TestEveryFolderAndFileThatThePagesNameExists(t *testing.T) {
	named := regexp.MustCompile("`((?:internal|store|adapters|examples|devmongo|bench|docs|cmd|tools|schedule|leader|assign|once|doclock|pathlock|fence)/[\\w/.-]*\\w)`")
	for page, text := range pages(t) {
		for _, n := range named.FindAllStringSubmatch(text, -1) {
			_, err := os.Stat(n[1])
			_, inside := os.Stat(filepath.Join(filepath.Dir(page), n[1]))
			assert.True(t, err == nil || inside == nil, "%s names %s", page, n[1])
		}
	}
}

func TestEveryMakeTargetThatThePagesNameExists(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	named := regexp.MustCompile("(?m)(?:`|^|^\\$ )make ([a-z-]+)")
	for page, text := range pages(t) {
		for _, n := range named.FindAllStringSubmatch(text, -1) {
			target := regexp.MustCompile("(?m)^" + n[1] + ":")
			assert.True(t, target.Match(makefile), "%s names make %s", page, n[1])
		}
	}
}

// An operator searches the log for what the page says.
func TestEveryLogLineOfTheReferenceIsWrittenByTheCode(t *testing.T) {
	_, monitoring, found := strings.Cut(pages(t)["docs/reference.md"], "\n## Log lines\n")
	require.True(t, found)
	monitoring, _, _ = strings.Cut(monitoring, "\n## ")
	lines := regexp.MustCompile("(?m)^\\| (\\w+(?:, \\w+)?) \\| `([^`]*)`").FindAllStringSubmatch(monitoring, -1)
	require.Len(t, lines, strings.Count(monitoring, "\n| ")-1, "rows, without the head")
	var code strings.Builder
	for file, text := range filesEndingIn(t, ".go") {
		if !strings.HasSuffix(file, "_test.go") {
			code.WriteString(text)
		}
	}
	for _, l := range lines {
		level := strings.ToUpper(l[1][:1]) + l[1][1:]
		calls := []string{level + "(", "say(slog.Level" + level + ", "} // of a logger, and of the engine's core
		if strings.Contains(level, ",") {
			calls = []string{"level, "} // which the code decides
		}
		logged := func(call string) bool { return strings.Contains(code.String(), call+`"`+l[2]+`"`) }
		if !slices.ContainsFunc(calls, logged) { // assert.Contains would print all of it
			t.Errorf("no code logs the %s line %q", l[1], l[2])
		}
	}
}

// The pages that teach show Go code which runs in a test: a block of Go, or the new lines of
// a change from another library.
func TestThePagesShowExamplesThatRun(t *testing.T) {
	all, examples := pages(t), exampleSources(t)
	for _, page := range []string{"README.md", "docs/guide.md", "docs/testing.md", "docs/migrating.md", "docs/internals/stores.md", "adapters/gocron/README.md", "adapters/cron/README.md", "adapters/webdav/README.md", "adapters/tus/README.md"} {
		blocks := shownCode(all[page])
		require.NotEmpty(t, blocks, "Go code in %s", page)
		for _, block := range blocks {
			code := words(block)
			assert.True(t, slices.ContainsFunc(examples, func(source string) bool { return strings.Contains(source, code) }),
				"this code of %s is in no example:\n%s", page, block)
		}
	}
}

func TestControlCodeThatIsInNoExampleIsNoticed(t *testing.T) {
	blocks := shownCode("```go\nlocks.Have(ctx)\n```\n\n```diff\n-old()\n+locks.Have(ctx)\n```\n")
	require.Equal(t, []string{"locks.Have(ctx)\n", "locks.Have(ctx)"}, blocks)
	for _, source := range exampleSources(t) {
		assert.NotContains(t, source, words(blocks[0]))
	}
}

var (
	diffBlock = regexp.MustCompile("(?ms)^```diff\n(.*?)^```$")
	added     = regexp.MustCompile(`(?m)^\+(.*)$`)
)

func shownCode(page string) (blocks []string) {
	for _, b := range goBlock.FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, b[1])
	}
	for _, b := range diffBlock.FindAllStringSubmatch(page, -1) {
		var lines []string
		for _, l := range added.FindAllStringSubmatch(b[1], -1) {
			lines = append(lines, l[1])
		}
		blocks = append(blocks, strings.Join(lines, "\n"))
	}
	return blocks
}

// The program that a new user copies is the whole file, not a part of one.
func TestTheProgramOfTheReadmeIsAnExampleFromItsFirstLineToItsLast(t *testing.T) {
	program, err := os.ReadFile("examples/first/main.go")
	require.NoError(t, err)
	assert.Contains(t, pages(t)["README.md"], "```go\n"+string(program)+"```\n")
}

func TestTheReadmeIsShort(t *testing.T) {
	assert.LessOrEqual(t, len(strings.Fields(pages(t)["README.md"])), 800, "words")
}

func TestTheChangelogOfWhatIsNotReleasedIsShort(t *testing.T) {
	_, unreleased, found := strings.Cut(pages(t)["CHANGELOG.md"], "\n## [Unreleased]\n")
	require.True(t, found)
	unreleased, _, _ = strings.Cut(unreleased, "\n## ")
	assert.LessOrEqual(t, len(strings.Fields(unreleased)), 400, "words")
}

// Each measurement draws the comparison's table anew, but not the sentence.
func TestTheReadmeSaysWhatWaitingCostsAsItWasMeasured(t *testing.T) {
	all := pages(t)
	said := regexp.MustCompile(`64 waiters in 8 processes cost ([\d.]+) requests a second where polling costs (\d+)`).FindStringSubmatch(all["README.md"])
	require.NotNil(t, said)
	polling, err := strconv.ParseFloat(said[2], 64)
	require.NoError(t, err)
	measured := make(map[string]float64) // in a row of lock, server, and six figures the fourth
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \|(?: [^|]+ \|){4} ([\d.]+) \|(?: [\d.]+ \|){2}$`).FindAllStringSubmatch(all["docs/internals/locks-measured.md"], -1) {
		measured[row[1]], err = strconv.ParseFloat(row[2], 64)
		require.NoError(t, err)
	}
	assert.Equal(t, said[1], strconv.FormatFloat(measured["**mongolock**"], 'f', 1, 64))
	for _, lock := range []string{"upsert and delete by hand", "square/mongo-lock", "redislock", "redsync"} {
		assert.GreaterOrEqual(t, measured[lock], polling, lock)
	}
}

// What a user may have to read: the README and the pages of docs, with their code and tables.
func TestThePagesOfUsersAreShort(t *testing.T) {
	n := 0
	for page, text := range pages(t) {
		if page == "README.md" || regexp.MustCompile(`^docs/[^/]+$`).MatchString(page) {
			n += len(strings.Fields(text))
		}
	}
	assert.LessOrEqual(t, n, 13_000, "words")
	assert.Greater(t, n, 10_000, "the pages are found")
}

func TestTheReadmeLinksEveryPage(t *testing.T) {
	all := pages(t)
	for page := range all {
		if regexp.MustCompile(`^docs/[^/]+$`).MatchString(page) {
			assert.Contains(t, all["README.md"], "]("+page, page)
		}
	}
}

func TestTheAdaptersAreInTheirIndex(t *testing.T) {
	modules, err := filepath.Glob("adapters/*/go.mod")
	require.NoError(t, err)
	require.Greater(t, len(modules), 6)
	all := pages(t)
	for _, m := range modules {
		dir := filepath.Dir(m)
		assert.Contains(t, all["adapters/README.md"], "]("+filepath.Base(dir)+")", dir)
		assert.Contains(t, all, filepath.ToSlash(dir)+"/README.md")
	}
}

func TestEveryPictureIsShownOnAPage(t *testing.T) {
	names, err := filepath.Glob("docs/pictures/*[gG]") // svg and png
	require.NoError(t, err)
	require.Greater(t, len(names), 5)
	var shown []string
	for page, text := range pages(t) {
		for _, p := range regexp.MustCompile(`!\[[^\]]*\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1) {
			shown = append(shown, filepath.Join(filepath.Dir(page), p[1]))
		}
	}
	for _, name := range names {
		assert.Contains(t, shown, name)
	}
}

// Comments, log lines, workflows and the command point to pages.
func TestEveryPageThatTheCodeNamesExists(t *testing.T) {
	named := regexp.MustCompile(`\bdocs/[\w/-]+\.(?:md|js|json)\b(#[\w-]+)?`)
	all, found := pages(t), 0
	for _, suffix := range []string{".go", ".yml", ".yaml", "Makefile", ".html"} {
		for file, text := range filesEndingIn(t, suffix) {
			for _, n := range named.FindAllStringSubmatch(linesWith(text, "docs/"), -1) {
				found++
				path, anchor, _ := strings.Cut(n[0], "#")
				_, err := os.Stat(path)
				assert.NoError(t, err, "%s names %s", file, n[0])
				if anchor != "" {
					assert.Contains(t, anchors(all[path]), anchor, "%s names %s", file, n[0])
				}
			}
		}
	}
	assert.Greater(t, found, 20)
}

// The reference's table has each option of the root package, where it may be given.
func TestTheReferenceListsEveryOption(t *testing.T) {
	takes := map[string]string{"Option": "✓|✓", "ClientOption": "✓|", "AcquireOption": "|✓"}
	rows := make(map[string]string)
	_, table, found := strings.Cut(pages(t)["docs/reference.md"], "\n## Options\n")
	require.True(t, found)
	for _, r := range regexp.MustCompile("(?m)^\\| `(\\w+)\\([^`]*\\)`: .*\\| ?(✓?) ?\\| ?(✓?) ?\\|$").FindAllStringSubmatch(table, -1) {
		rows[r[1]] = r[2] + "|" + r[3]
	}
	options := 0
	root, _ := readPackage(t, ".")
	for _, typ := range root.Types {
		want, ok := takes[typ.Name]
		if !ok {
			continue
		}
		for _, f := range typ.Funcs {
			options++
			assert.Equal(t, want, rows[f.Name], f.Name)
		}
	}
	assert.Len(t, rows, options, "rows and options")
	assert.Greater(t, options, 15)
}

// exampleSources returns the files whose code runs in tests or by make demo.
func exampleSources(t *testing.T) []string {
	t.Helper()
	var sources []string
	for _, pattern := range []string{"example*_test.go", "*/example*_test.go", "store/*/example*_test.go", "adapters/*/example*_test.go", "examples/*/*.go"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			source, err := os.ReadFile(name)
			require.NoError(t, err)
			sources = append(sources, words(string(source)))
		}
	}
	return sources
}

// words returns code with each run of whitespace reduced to one space.
func words(code string) string { return strings.Join(strings.Fields(code), " ") }

func TestReadmeShowsTheDemoAsRecorded(t *testing.T) {
	assert.Contains(t, pages(t)["README.md"], "](docs/pictures/demo.svg)")
	recorded, err := os.ReadFile("docs/pictures/demo.cast")
	require.NoError(t, err)
	assert.Contains(t, string(recorded), "counter 8, never two at once")
}

func TestEveryNameThatThePagesQualifyExists(t *testing.T) {
	exported := make(map[string]map[string]bool)
	for _, dir := range importable(t) {
		p, _ := readPackage(t, dir)
		exported[p.Name] = exportedBy(p)
	}
	qualified := regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)`)
	found := 0
	for page, text := range pages(t) {
		for _, n := range qualified.FindAllStringSubmatch(text, -1) {
			if names := exported[n[1]]; names != nil {
				found++
				assert.True(t, names[n[2]], "%s names %s", page, n[0])
			}
		}
	}
	assert.Greater(t, found, 100, "names found")
	assert.False(t, exported["schedule"]["OnMissed"], "a name of another day would pass")
}

// exportedBy returns what stands after a package's name on a page: also a method, which pages call as
// doclock.Update.
func exportedBy(p *doc.Package) map[string]bool {
	all := make(map[string]bool)
	functions := func(some []*doc.Func) {
		for _, f := range some {
			all[f.Name] = true
		}
	}
	values := func(some []*doc.Value) {
		for _, v := range some {
			for _, name := range v.Names {
				all[name] = true
			}
		}
	}
	functions(p.Funcs)
	values(append(p.Consts, p.Vars...))
	for _, typ := range p.Types {
		all[typ.Name] = true
		functions(append(typ.Funcs, typ.Methods...))
		values(append(typ.Consts, typ.Vars...))
	}
	return all
}
