package mongolock_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented are the packages whose every entry point has an example.
var documented = []string{".", "mongolocktest", "store", "store/memstore", "store/filestore", "pathlock", "schedule", "leader", "doclock", "fence", "adapters/webdav"}

// contract are the methods that memstore.Store has because package store asks for
// them: the engine calls them, and a user of the library never does.
var contract = []string{
	"Acquire", "Renew", "Release", "Transfer", "Undo", "Break", "Look", "List",
	"AnswersAtOnce", "Notify", "Watch", "Withdraw",
}

func TestEveryEntryPointHasACheckedExample(t *testing.T) {
	for _, dir := range documented {
		p := readPackage(t, dir)
		checkExamples(t, p.Name, p.Examples)
		for _, f := range p.Funcs {
			wantExample(t, p.Name, f)
		}
		for _, typ := range p.Types {
			checkExamples(t, p.Name+"."+typ.Name, typ.Examples)
			for _, f := range typ.Funcs {
				wantExample(t, p.Name, f)
			}
			for _, m := range typ.Methods {
				if !ofInterface(p.Name, typ.Name, m.Name) {
					wantExample(t, p.Name+"."+typ.Name, m)
				}
			}
		}
	}
}

func wantExample(t *testing.T, of string, f *doc.Func) {
	t.Helper()
	if len(f.Examples) == 0 {
		t.Errorf("%s.%s has no example", of, f.Name)
	}
	checkExamples(t, of+"."+f.Name, f.Examples)
}

func checkExamples(t *testing.T, of string, examples []*doc.Example) {
	t.Helper()
	for _, e := range examples {
		if e.Output == "" {
			t.Errorf("the example %s of %s has no output that could be checked", e.Suffix, of)
		}
	}
}

// ofInterface tells the methods that are called through an interface.
func ofInterface(pkg, typ, method string) bool {
	if strings.HasSuffix(typ, "Error") {
		return method == "Error" || method == "Is" || method == "Unwrap"
	}
	switch {
	case (pkg == "memstore" || pkg == "filestore") && typ == "Store":
		return slices.Contains(contract, method)
	case pkg == "schedule" && typ == "Memory": // the contract of schedule.Store, and its clock
		return slices.Contains([]string{"Claim", "Renew", "Finish", "Undo", "Look", "Names", "Forget", "Now", "AnswersAtOnce"}, method)
	case pkg == "schedule" && typ == "Run": // which log/slog calls
		return method == "LogValue"
	case pkg == "pathlock": // its storages, which trees call
		return slices.Contains([]string{"View", "Update", "AnswersAtOnce"}, method)
	}
	return false
}

// readPackage parses a package and its tests.
func readPackage(t *testing.T, dir string) *doc.Package {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, "github.com/mongolock/mongolock/"+dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// What the README shows compiles and does what its checked output says.
func TestReadmeShowsExamplesThatRun(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := goBlock.FindAllSubmatch(readme, -1)
	if len(blocks) == 0 {
		t.Fatal("no Go code in README.md")
	}
	examples := exampleSources(t)
	for _, block := range blocks {
		code := words(string(block[1]))
		if !slices.ContainsFunc(examples, func(source string) bool { return strings.Contains(source, code) }) {
			t.Errorf("this code of README.md is in no example:\n%s", block[1])
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)\)`)

func TestReadmeLinksLeadSomewhere(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range link.FindAllSubmatch(readme, -1) {
		if _, err := os.Stat(string(l[1])); err != nil {
			t.Error(err)
		}
	}
}

// exampleSources are the files whose code runs in tests or by make demo.
func exampleSources(t *testing.T) []string {
	t.Helper()
	var sources []string
	for _, pattern := range []string{"example*_test.go", "*/example*_test.go", "examples/*/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, words(string(source)))
		}
	}
	return sources
}

// words is code with its whitespace reduced to what separates words.
func words(code string) string { return strings.Join(strings.Fields(code), " ") }

// The README shows the demo as it was recorded.
func TestReadmeShowsTheDemoAsRecorded(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	demo, err := os.ReadFile("docs/demo.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), strings.TrimSpace(string(demo))) {
		t.Error("README.md does not show docs/demo.txt")
	}
}
