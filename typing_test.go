package mongolock_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The type of an option says where it may be given.
func TestAnOptionInTheWrongPlaceDoesNotCompile(t *testing.T) {
	t.Parallel()
	const (
		needsAcquire = "does not implement mongolock.AcquireOption"
		needsClient  = "does not implement mongolock.ClientOption"
		needsBoth    = "does not implement mongolock.Option"
	)
	tests := []struct{ expression, says string }{
		{"client.Acquire(ctx, key, mongolock.WithLogger(nil))", needsAcquire},
		{"client.TryAcquire(ctx, key, mongolock.WithOwner(key))", needsAcquire},
		{"client.Acquire(ctx, key, mongolock.WithMargin(0))", needsAcquire},
		{"mongolock.Do(ctx, client, key, nil, mongolock.WithObserver(nil))", needsAcquire},
		{"mongolock.TryDo(ctx, client, key, nil, mongolock.WithoutFeed())", needsAcquire},
		{"mongolock.NewWithStore(nil, mongolock.MinHold(0))", needsClient},
		{"mongolock.NewWithStore(nil, mongolock.Note(key))", needsClient},
		{"mongolock.New(nil, mongolock.MinHold(0))", needsClient},
		{"client.Resume(ctx, key, mongolock.MinHold(0))", needsBoth},
		{"client.Resume(ctx, key, mongolock.WithOwner(key))", needsBoth},

		// The control: an option in its place compiles.
		{"client.Acquire(ctx, key, mongolock.TTL(0), mongolock.MaxHold(0), mongolock.MaxWait(0), mongolock.NoRenewal(), mongolock.MinHold(0), mongolock.Note(key))", ""},
		{"mongolock.NewWithStore(nil, mongolock.TTL(0), mongolock.MaxHold(0), mongolock.MaxWait(0), mongolock.NoRenewal(), mongolock.WithOwner(key))", ""},
		{"mongolock.New(nil, mongolock.TTL(0), mongolock.WithLogger(nil), mongolock.WithoutIndex())", ""},
		{"client.Resume(ctx, key, mongolock.TTL(0), mongolock.MaxHold(0))", ""},
	}
	imports := compiled(t)
	for _, test := range tests {
		err := typeCheck(test.expression, imports)
		if test.says == "" {
			assert.NoError(t, err, test.expression)
		} else {
			assert.ErrorContains(t, err, test.says, test.expression)
		}
	}
}

func typeCheck(expression string, imports types.Importer) error {
	source := fmt.Sprintf(`package p

import (
	"context"

	"github.com/mongolock/mongolock"
)

func f(ctx context.Context, client *mongolock.Client, key string) { %s }
`, expression)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		return err
	}
	_, err = (&types.Config{Importer: imports}).Check("p", fset, []*ast.File{file}, nil)
	return err
}

// compiled returns an importer of this module and its dependencies from the build cache.
func compiled(t *testing.T) types.Importer {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export", ".")
	list.Stderr = t.Output()
	out, err := list.Output()
	require.NoError(t, err, "go list")
	exports := make(map[string]string)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		exports[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
}
