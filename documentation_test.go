package mongolock_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// documented lists the packages in which every entry point has an example.
var documented = []string{".", "mongolocktest", "store", "store/memstore", "store/filestore", "store/mongostore", "pathlock", "pathlock/pathlocktest", "schedule", "schedule/scheduletest", "leader", "assign", "doclock", "doclock/doclocktest", "fence", "once", "keep", "traps", "adapters/webdav", "adapters/otel", "adapters/prometheus", "adapters/gocron", "adapters/cron", "adapters/tus", "adapters/certmagic"}

// contract lists the methods of package store's interfaces. The engine calls them; a user of
// the library never does.
var contract = []string{
	"Acquire", "Renew", "Release", "Leave", "Transfer", "Undo", "Break", "Look", "List",
	"Notify", "Watch",
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
	assert.NotEmpty(t, f.Examples, "the examples of %s.%s", of, f.Name)
	checkExamples(t, of+"."+f.Name, f.Examples)
}

func checkExamples(t *testing.T, of string, examples []*doc.Example) {
	t.Helper()
	for _, e := range examples {
		assert.NotEmpty(t, e.Output, "the output, to be checked, of example %q of %s", e.Suffix, of)
	}
}

// ofInterface reports whether a method is called through an interface only, not by users
// directly.
func ofInterface(pkg, typ, method string) bool {
	if strings.HasSuffix(typ, "Error") {
		return method == "Error" || method == "Is" || method == "Unwrap"
	}
	switch {
	case (pkg == "memstore" || pkg == "filestore" || pkg == "mongostore") && typ == "Store":
		return slices.Contains(contract, method)
	case pkg == "mongolock" && (typ == "Lease" || typ == "Client"), pkg == "store" && (typ == "Ref" || typ == "Holder" || typ == "Waiter" || typ == "Status"): // which packages fmt and log/slog call
		return slices.Contains([]string{"String", "Format", "LogValue"}, method)
	case pkg == "schedule" && typ == "Run": // which log/slog calls
		return method == "LogValue"
	case pkg == "gocronlock": // which gocron calls
		return method == "Lock" || method == "IsLeader"
	case pkg == "cronlock" && typ == "ContextFunc": // which cron and Once call
		return method == "Run" || method == "RunContext"
	case pkg == "certmagiclock": // which CertMagic calls
		return slices.Contains([]string{"Lock", "TryLock", "Unlock", "RenewLockLease"}, method)
	case pkg == "promlock" || pkg == "otellock": // which the library and Prometheus call
		return slices.Contains([]string{"Begin", "Watch", "Describe", "Collect"}, method)
	}
	return false
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
