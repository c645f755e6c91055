package pages_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A constructor returns a type of its package that has methods or is an interface, but not an option. A
// caller makes a struct of exported fields that functions take and none returns.
func TestEveryConstructorAndEveryTypeThatACallerMakesHasACheckedExample(t *testing.T) {
	for _, dir := range importable(t) {
		p, examples := readPackage(t, dir)
		assert.Empty(t, withoutExample(p, examples), dir)
	}
}

func TestControlWhatHasNoCheckedExampleIsNoticed(t *testing.T) {
	const tree = "type Tree struct{}\nfunc (Tree) Close() {}\n"
	for name, c := range map[string]struct {
		source, example string
		want            []string
	}{
		"a constructor without an example": {
			source: tree + "func New() (*Tree, error) { return nil, nil }",
			want:   []string{"New"},
		},
		"a constructor in an example": {
			source:  tree + "func New() (*Tree, error) { return nil, nil }",
			example: "func Example() {\n tree.New()\n // Output: x\n}",
		},
		"an example that go test only compiles": {
			source:  tree + "func New() (*Tree, error) { return nil, nil }",
			example: "func ExampleNew() {\n tree.New()\n}",
			want:    []string{"New"},
		},
		"an example of something else": {
			source:  tree + "func New() *Tree { return nil }\nfunc Open() *Tree { return nil }",
			example: "func ExampleNew() {\n tree.New()\n // Output:\n}",
			want:    []string{"Open"},
		},
		"an interface": {
			source: "type Plan interface{ next() int }\nfunc Every(n int) Plan { return nil }",
			want:   []string{"Every"},
		},
		"an option": {
			source: "type Option interface{ apply() }\nfunc With(n int) Option { return nil }",
		},
		"a result without methods": {
			source: "type State struct{ N int }\nfunc Look() State { return State{} }",
		},
		"what a function takes": {
			source: "type Request struct{ Path string }\nfunc Do(r Request) {}",
			want:   []string{"Request"},
		},
		"what a method takes several of": {
			source: tree + "type Request struct{ Path string }\nfunc (Tree) Lock(all ...*Request) {}",
			want:   []string{"Request"},
		},
		"what an option takes": {
			source: "type Limits struct{ Most int }\ntype Option interface{ apply() }\nfunc With(Limits) Option { return nil }",
			want:   []string{"Limits"},
		},
		"what an example makes": {
			source:  "type Request struct{ Path string }\nfunc Do(r Request) {}",
			example: "func ExampleDo() {\n tree.Do(tree.Request{})\n // Output:\n}",
		},
		"what another function returns": {
			source: "type Lock struct{ Path string }\nfunc Take() (Lock, error) { return Lock{}, nil }\nfunc Resume(Lock) {}",
		},
		"what only the package can fill": {
			source: "type Call struct{ Op string; apply func() }\nfunc Lose(*Call) {}",
		},
		"what a function of the caller's takes": {
			source: "type Event struct{ Path string }\nfunc Watch(fn func(Event)) {}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fset := token.NewFileSet()
			p, examples := readFiles(t, fset, "tree",
				parse(t, fset, "tree.go", "package tree\n"+c.source),
				parse(t, fset, "tree_test.go", "package tree_test\n"+c.example))
			assert.Equal(t, c.want, withoutExample(p, examples))
		})
	}
}

// withoutExample returns what has to be used in a checked example and is in none.
func withoutExample(p *doc.Package, examples []*doc.Example) (missing []string) {
	used := make(map[string]bool)
	for _, e := range examples {
		if e.Output == "" && !e.EmptyOutput {
			continue // go test only compiles it
		}
		ast.Inspect(e.Code, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && isNamed(s.X, p.Name) {
				used[s.Sel.Name] = true
			}
			return true
		})
	}
	for _, name := range append(constructors(p), madeByCallers(p)...) {
		if !used[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

func isNamed(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

func constructors(p *doc.Package) (names []string) {
	for _, typ := range p.Types {
		_, isInterface := declared(typ).(*ast.InterfaceType)
		if strings.HasSuffix(typ.Name, "Option") || !isInterface && len(typ.Methods) == 0 {
			continue
		}
		for _, f := range typ.Funcs {
			names = append(names, f.Name)
		}
	}
	return names
}

func madeByCallers(p *doc.Package) (names []string) {
	functions := slices.Clone(p.Funcs)
	for _, typ := range p.Types {
		functions = slices.Concat(functions, typ.Funcs, typ.Methods)
	}
	taken, returned := make(map[string]bool), make(map[string]bool)
	for _, f := range functions {
		nameTypes(taken, f.Decl.Type.Params)
		nameTypes(returned, f.Decl.Type.Results)
	}
	for _, typ := range p.Types {
		s, isStruct := declared(typ).(*ast.StructType)
		if isStruct && len(s.Fields.List) > 0 && !s.Incomplete && taken[typ.Name] && !returned[typ.Name] {
			names = append(names, typ.Name)
		}
	}
	return names
}

// declared returns what a type is declared as, without what it does not export.
func declared(typ *doc.Type) ast.Expr { return typ.Decl.Specs[0].(*ast.TypeSpec).Type }

// nameTypes adds the names of the package's own types in a list of parameters. What a function among them
// takes is made by the package.
func nameTypes(into map[string]bool, of *ast.FieldList) {
	if of == nil {
		return
	}
	for _, field := range of.List {
		ast.Inspect(field.Type, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncType, *ast.SelectorExpr:
				return false
			case *ast.Ident:
				into[n.Name] = true
			}
			return true
		})
	}
}

// importable returns the folders of all packages that users import.
func importable(t *testing.T) (dirs []string) {
	t.Helper()
	others := []string{"bench", "bin", "cmd", "devmongo", "docs", "examples", "internal", "testdata", "tools"}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case slices.Contains(others, d.Name()) || path != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		}
		if sources, err := filepath.Glob(filepath.Join(path, "*.go")); err != nil || len(sources) > 0 {
			dirs = append(dirs, filepath.ToSlash(path))
		}
		return nil
	})
	require.NoError(t, err)
	require.Subset(t, dirs, []string{".", "schedule/scheduletest", "adapters/gocron"})
	return dirs
}

// readPackage parses a package and the examples in its tests.
func readPackage(t *testing.T, dir string) (*doc.Package, []*doc.Example) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, names, "Go files in %s", dir)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		files = append(files, parse(t, fset, name, nil))
	}
	return readFiles(t, fset, dir, files...)
}

func readFiles(t *testing.T, fset *token.FileSet, dir string, files ...*ast.File) (*doc.Package, []*doc.Example) {
	t.Helper()
	p, err := doc.NewFromFiles(fset, files, "github.com/mongolock/mongolock/"+dir)
	require.NoError(t, err)
	return p, doc.Examples(files...)
}

func parse(t *testing.T, fset *token.FileSet, name string, source any) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(fset, name, source, parser.ParseComments)
	require.NoError(t, err)
	return f
}
