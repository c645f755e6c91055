package engine_test

import (
	"context"
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
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store/memstore"
)

// mustSay fails unless err is an error of this package whose text contains all of want.
func mustSay(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, w := range append([]string{"mongolock: "}, want...) {
		assert.ErrorContains(t, err, w)
	}
}

const year = 365 * 24 * time.Hour

// wrongTerms are options that every acquire refuses, and what the error says.
var wrongTerms = map[string]struct {
	option mongolock.AcquireOption
	says   []string
}{
	"TTL negative":          {mongolock.TTL(-time.Second), []string{"TTL(-1s)", "100ms", "year"}},
	"TTL zero":              {mongolock.TTL(0), []string{"TTL(0s)", "100ms", "year"}},
	"TTL short":             {mongolock.TTL(99 * time.Millisecond), []string{"TTL(99ms)", "100ms", "year"}},
	"TTL long":              {mongolock.TTL(year + 1), []string{"TTL(8760h0m0.000000001s)", "100ms", "year"}},
	"MaxHold negative":      {mongolock.MaxHold(-1), []string{"MaxHold(-1ns)", "positive"}},
	"MaxHold zero":          {mongolock.MaxHold(0), []string{"MaxHold(0s)", "positive"}},
	"MaxWait negative":      {mongolock.MaxWait(-time.Hour), []string{"MaxWait(-1h0m0s)", "positive"}},
	"MaxWait zero":          {mongolock.MaxWait(0), []string{"MaxWait(0s)", "positive"}},
	"MinHold negative":      {mongolock.MinHold(-1), []string{"MinHold(-1ns)", "positive"}},
	"MinHold zero":          {mongolock.MinHold(0), []string{"MinHold(0s)", "positive"}},
	"MinHold long":          {mongolock.MinHold(year + 1), []string{"MinHold(8760h0m0.000000001s)", "year"}},
	"note long":             {mongolock.Note(strings.Repeat("n", 1025)), []string{"Note", "1025 bytes", "1024"}},
	"note not UTF-8":        {mongolock.Note("caf\xe9"), []string{"Note", "UTF-8"}},
	"margin over half, TTL": {mongolock.TTL(time.Second), []string{"WithMargin(2s)", "half the TTL of 1s"}},
	"nil":                   {nil, []string{"nil AcquireOption"}},
}

func TestAWrongOptionOfAcquireIsNamedWithItsValueAndNothingIsSent(t *testing.T) {
	for name, wrong := range wrongTerms {
		t.Run(name, func(t *testing.T) {
			s := lab.New(memstore.New())
			client := newClient(t, s, mongolock.WithMargin(2*time.Second))
			never := func(context.Context, *mongolock.Lease) error { t.Error("fn ran"); return nil }

			_, err := client.Acquire(t.Context(), "k", wrong.option)
			mustSay(t, err, wrong.says...)
			_, err = client.TryAcquire(t.Context(), "k", wrong.option)
			mustSay(t, err, wrong.says...)
			mustSay(t, mongolock.Do(t.Context(), client, "k", never, wrong.option), wrong.says...)
			_, err = mongolock.TryDo(t.Context(), client, "k", never, wrong.option)
			mustSay(t, err, wrong.says...)

			assert.Zero(t, s.Count(), "store calls")
		})
	}
}

func TestAWrongOptionOfAClientIsNamedWithItsValue(t *testing.T) {
	wrong := map[string]struct {
		option mongolock.ClientOption
		says   []string
	}{
		"margin negative":  {mongolock.WithMargin(-time.Millisecond), []string{"WithMargin(-1ms)", "negative"}},
		"margin over half": {mongolock.WithMargin(15*time.Second + 1), []string{"WithMargin(15.000000001s)", "half the TTL of 30s"}},
		"owner empty":      {mongolock.WithOwner(""), []string{"WithOwner", "empty"}},
		"owner long":       {mongolock.WithOwner(strings.Repeat("o", 257)), []string{"WithOwner", "257 bytes", "256"}},
		"owner not UTF-8":  {mongolock.WithOwner("caf\xe9"), []string{"WithOwner", "UTF-8"}},
		"logger nil":       {mongolock.WithLogger(nil), []string{"WithLogger(nil)"}},
		"observer nil":     {mongolock.WithObserver(nil), []string{"WithObserver(nil)"}},
		"nil":              {nil, []string{"nil ClientOption"}},
	}
	for name, terms := range wrongTerms {
		if both, ok := terms.option.(mongolock.Option); ok && !strings.HasPrefix(name, "margin") {
			wrong[name] = struct {
				option mongolock.ClientOption
				says   []string
			}{both, terms.says}
		}
	}
	for name, w := range wrong {
		t.Run(name, func(t *testing.T) {
			client, err := mongolock.NewWithStore(memstore.New(), w.option)
			assert.Nil(t, client, "a client is returned with an error")
			mustSay(t, err, w.says...)
		})
	}
}

func TestEveryFaultOfTheOptionsIsNamedInOneError(t *testing.T) {
	_, err := mongolock.NewWithStore(nil, mongolock.TTL(0), mongolock.WithOwner(""), mongolock.WithMargin(-1))
	mustSay(t, err, "NewWithStore: the store is nil", "TTL(0s)", "WithOwner", "WithMargin(-1ns)")
	_, err = mongolock.New(nil, mongolock.TTL(0))
	mustSay(t, err, "New: the collection is nil", "TTL(0s)")

	client := newClient(t, memstore.New())
	_, err = client.Acquire(t.Context(), "k", mongolock.MinHold(-1), mongolock.MaxHold(-1))
	mustSay(t, err, "MinHold(-1ns)", "MaxHold(-1ns)")
}

func TestValuesAtTheLimitsAreAllowed(t *testing.T) {
	client := newClient(t, memstore.New(), mongolock.WithOwner(strings.Repeat("o", 256)), mongolock.WithMargin(50*time.Millisecond))
	for _, opts := range [][]mongolock.AcquireOption{
		{mongolock.TTL(100 * time.Millisecond)},
		{mongolock.TTL(year)},
		{mongolock.MinHold(year)},
		{mongolock.MaxHold(1<<63 - 1), mongolock.MaxWait(1<<63 - 1)},
		{mongolock.Note(strings.Repeat("n", 1024))},
		{mongolock.Note("")},
	} {
		lease, err := client.Acquire(t.Context(), time.Now().String(), opts...)
		require.NoError(t, err)
		assert.NoError(t, lease.Release())
	}
}

func TestAWrongKeyIsRefusedAndNothingIsWritten(t *testing.T) {
	s := lab.New(memstore.New())
	client := newClient(t, s)
	wrong := map[string]string{
		"":                        "key is empty",
		strings.Repeat("k", 1025): "key has 1025 bytes: at most 1024",
		"caf\xe9":                 "key is not valid UTF-8",
	}
	for key, says := range wrong {
		for name, call := range callsOf(t.Context(), client, key) {
			t.Run(name+", "+says, func(t *testing.T) { mustSay(t, call(), says) })
		}
	}
	assert.Zero(t, s.Count(), "store calls")
}

// callsOf returns a call of each function that takes a key.
func callsOf(ctx context.Context, c *mongolock.Client, key string) map[string]func() error {
	job := func(context.Context, *mongolock.Lease) error { return nil }
	return map[string]func() error{
		"Acquire":    func() error { _, err := c.Acquire(ctx, key); return err },
		"TryAcquire": func() error { _, err := c.TryAcquire(ctx, key); return err },
		"Do":         func() error { return mongolock.Do(ctx, c, key, job) },
		"TryDo":      func() error { _, err := mongolock.TryDo(ctx, c, key, job); return err },
		"Inspect":    func() error { _, err := c.Inspect(ctx, key); return err },
		"Break":      func() error { _, err := c.Break(ctx, key, "why not", 0); return err },
	}
}

func TestDoWithoutAFunctionSendsNothing(t *testing.T) {
	s := lab.New(memstore.New())
	client := newClient(t, s)
	mustSay(t, mongolock.Do(t.Context(), client, "k", nil), "Do: fn is nil")
	ran, err := mongolock.TryDo(t.Context(), client, "k", nil)
	mustSay(t, err, "TryDo: fn is nil")
	assert.False(t, ran)
	assert.Zero(t, s.Count(), "store calls")
}

func TestBreakWithoutAValidReasonIsRefused(t *testing.T) {
	s := lab.New(memstore.New())
	client := newClient(t, s)
	for reason, says := range map[string]string{
		"": "reason is empty", strings.Repeat("r", 1025): "reason has 1025 bytes", "caf\xe9": "reason is not valid UTF-8",
	} {
		_, err := client.Break(t.Context(), "k", reason, 0)
		mustSay(t, err, says)
	}
	assert.Zero(t, s.Count(), "store calls")
}

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
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export", "github.com/mongolock/mongolock")
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
