package specpath

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

const (
	free    = `<<"none", <<>>, <<<<FALSE, 0, 1, FALSE, FALSE>>, <<FALSE, 0, 1, FALSE, FALSE>>>>, 0>>`
	held    = `<<"exclusive", <<>>, <<<<TRUE, 2, 1, FALSE, FALSE>>, <<FALSE, 0, 1, FALSE, FALSE>>>>, 0>>`
	awaited = `<<"exclusive", <<<<1, "exclusive", TRUE>>>>, <<<<TRUE, 2, 1, FALSE, FALSE>>, <<FALSE, 0, 1, FALSE, FALSE>>>>, 0>>`
)

// little is a part of the graph, in which a grant and a release follow each other.
func little(t *testing.T, lines ...string) *Graph {
	t.Helper()
	g, err := Read("little", strings.NewReader(strings.Join(append([]string{
		`<<"edge", ` + free + `, <<"acquire", 1, "exclusive", 0, 0, 0>>, <<"granted", <<>>>>, ` + held + `>>`,
		`<<"edge", ` + held + `, <<"release", 1>>, <<"released", <<>>, 0>>, ` + free + `>>`,
		`<<"edge", ` + free + `, <<"release", 1>>, <<"gone">>, ` + free + `>>`,
	}, lines...), "\n")))
	require.NoError(t, err)
	return g
}

type inMemory struct{ records *memstore.Store }

func (s inMemory) Store() store.Store                        { return s.records }
func (s inMemory) Tick(context.Context, string) error        { time.Sleep(Tick); return nil } // virtual
func (s inMemory) Sweep(_ context.Context, key string) error { s.records.Delete(key); return nil }

func TestAWalkMakesEveryCallOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := little(t)
		r := Walk(t.Context(), g, inMemory{memstore.New()})
		assert.Empty(t, r.Failures)
		assert.Equal(t, []int{3, 3, 2, 3}, []int{g.Calls, r.Calls, len(g.States), r.Edges})
	})
}

func TestAnAnswerThatIsNoEdgeIsNamedWithItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := little(t, `<<"edge", `+held+`, <<"renew", 1, 0>>, <<"gone">>, `+held+`>>`)
		r := Walk(t.Context(), g, inMemory{memstore.New()})
		require.NotEmpty(t, r.Failures)
		assert.Contains(t, r.Failures[0], "renew [1 0] in [exclusive [] [[true 2 1 false false] [false 0 1 false false]] 0]: no edge of the specification: answered [renewed], not [gone]")
		assert.Less(t, r.Calls, g.Calls)
	})
}

func TestAWaiterIsLookedForInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := []string{
			`<<"edge", ` + held + `, <<"acquire", 2, "exclusive", 1, 0, 0>>, <<"held">>, ` + awaited + `>>`,
			`<<"edge", ` + awaited + `, <<"leave", 1, FALSE>>, <<"done">>, ` + held + `>>`,
		}
		assert.Empty(t, Walk(t.Context(), little(t, lines...), inMemory{memstore.New()}).Failures)
		s := memstore.New()
		r := Walk(t.Context(), little(t, lines...), Faulty{inMemory{s}, faults["no line"]})
		require.NotEmpty(t, r.Failures)
		assert.Contains(t, r.Failures[0], `at place ""`)
	})
}

func TestANumberOfPermitsIsLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := strings.TrimSuffix(free, "0>>") + "3>>"
		lines := []string{
			`<<"edge", ` + free + `, <<"limit", 3>>, <<"done">>, ` + limited + `>>`,
			`<<"edge", ` + limited + `, <<"limit", 0>>, <<"done">>, ` + free + `>>`,
		}
		assert.Empty(t, Walk(t.Context(), little(t, lines...), inMemory{memstore.New()}).Failures)
		r := Walk(t.Context(), little(t, `<<"edge", `+free+`, <<"limit", 3>>, <<"done">>, `+free+`>>`), inMemory{memstore.New()})
		require.NotEmpty(t, r.Failures)
		assert.Contains(t, r.Failures[0], "the number of permits is 3, not 0")
	})
}

func TestAFileThatIsNotAGraphIsRefused(t *testing.T) {
	for _, text := range []string{"", `<<"edge", 1>>`, `<<"edge"`, `<<maybe>>`, `"edge`} {
		_, err := Read("none", strings.NewReader(text))
		assert.Error(t, err, text)
	}
}
