package mongolock_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// documented lists the packages in which every function has an example: constructors, options, and what stands
// alone. Of methods those have one that a page shows, or that are a concept of their own.
var documented = []string{".", "mongolocktest", "store", "store/memstore", "store/filestore", "store/mongostore", "pathlock", "pathlock/pathlocktest", "schedule", "schedule/scheduletest", "leader", "assign", "doclock", "doclock/doclocktest", "fence", "once", "keep", "traps", "adapters/webdav", "adapters/otel", "adapters/prometheus", "adapters/gocron", "adapters/cron", "adapters/tus", "adapters/certmagic"}

func TestEveryFunctionHasACheckedExample(t *testing.T) {
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
				checkExamples(t, p.Name+"."+typ.Name+"."+m.Name, m.Examples)
			}
		}
	}
}

func wantExample(t *testing.T, of string, f *doc.Func) {
	t.Helper()
	assert.NotEmpty(t, f.Examples, "the examples of %s.%s", of, f.Name)
	checkExamples(t, of+"."+f.Name, f.Examples)
}

func checkExamples(t *testing.T, of string, examples []*doc.Example) {
	t.Helper()
	for _, e := range examples {
		assert.NotEmpty(t, e.Output, "the output, to be checked, of example %q of %s", e.Suffix, of)
	}
}

// readPackage parses a package and its tests.
func readPackage(t *testing.T, dir string) *doc.Package {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, names, "Go files in %s", dir)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, "github.com/mongolock/mongolock/"+dir)
	require.NoError(t, err)
	return p
}
