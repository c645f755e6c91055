package doclock_test

import (
	"context"
	"crypto/rand"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock/internal/testserver"
)

// examples are those of example_test.go; one that is missing here fails the test.
var examples = map[string]func(){
	"ExampleLocks_Acquire":            ExampleLocks_Acquire,
	"ExampleLocks_TryAcquire":         ExampleLocks_TryAcquire,
	"ExampleLocks_AcquireOrCreate":    ExampleLocks_AcquireOrCreate,
	"ExampleLocks_TryAcquireOrCreate": ExampleLocks_TryAcquireOrCreate,
	"ExampleField":                    ExampleField,
	"ExampleDocument_Save":            ExampleDocument_Save,
	"ExampleDocument_SaveAndRelease":  ExampleDocument_SaveAndRelease,
	"ExampleLocks_Claim":              ExampleLocks_Claim,
	"ExampleClaimed_Requeue":          ExampleClaimed_Requeue,
	"ExampleClaimed_Remove":           ExampleClaimed_Remove,
}

// wants are capabilities that an example needs beside a server.
var wants = map[string][]string{"ExampleDocument_SaveAndRelease": {"transactions"}}

func TestTheExamplesPrintWhatTheySay(t *testing.T) {
	said := promises(t)
	if len(said) != len(examples) {
		t.Errorf("there are %d examples, of which %d are run", len(said), len(examples))
	}
	uri := testserver.URI(t)
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	for name, want := range said {
		t.Run(name, func(t *testing.T) {
			testserver.URI(t, wants[name]...)
			db = client.Database("doclock_" + rand.Text()[:8])
			defer db.Drop(context.Background())
			if got := printed(t, examples[name]); got != want {
				t.Errorf("it prints\n%s\nnot\n%s", got, want)
			}
		})
	}
}

// promises are the comments that begin with "Prints:", by the example.
func promises(t *testing.T) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "example_test.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(fn.Name.Name, "Example") {
			continue
		}
		for _, c := range f.Comments {
			if c.Pos() < fn.Pos() || c.End() > fn.End() {
				continue
			}
			if text, is := strings.CutPrefix(c.Text(), "Prints:\n"); is {
				said[fn.Name.Name] = strings.TrimSpace(text)
			}
		}
		if said[fn.Name.Name] == "" {
			t.Errorf("%s does not say what it prints", fn.Name.Name)
		}
	}
	return said
}

// printed is what f writes to the standard output.
func printed(t *testing.T, f func()) string {
	t.Helper()
	if f == nil {
		t.Fatal("is not in the list of examples")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	func() {
		defer func() { os.Stdout = stdout; w.Close() }()
		f()
	}()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
