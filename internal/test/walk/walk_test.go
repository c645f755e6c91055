package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAFigureAboveItsCeilingIsToldAndSoIsOneBelow(t *testing.T) {
	ceilings := figures{"free/files": 53, "type/store.Store": 4, "type/mongolock.Client": 16, "type/mongolock.Gone": 3}
	above, below := ceilings.compare(figures{"free/files": 54, "type/store.Store": 4, "type/mongolock.Client": 15, "type/mongolock.New": 3})
	assert.Equal(t, []string{"free/files: 54, above its ceiling of 53", "type/mongolock.New: 3, above its ceiling of 2"}, above)
	assert.Equal(t, []string{"type/mongolock.Client: 15, below its ceiling of 16", "type/mongolock.Gone: 0, below its ceiling of 3"}, below)
}

func TestFiguresAtTheirCeilingsAreInOrder(t *testing.T) {
	ceilings := figures{"free/files": 53, "type/mongolock.Client": 16}
	above, below := ceilings.compare(figures{"free/files": 53, "type/mongolock.Client": 16})
	assert.Empty(t, above)
	assert.Empty(t, below)
}

func TestTheCeilingsAreReadAsTheyAreWritten(t *testing.T) {
	want := figures{"held/packages": 20, "free/functions": 161, "free/files": 53, "type/a.B": 3, "type/mongolock.Client": 16}
	got, err := parse(want.String())
	require.NoError(t, err)
	assert.Equal(t, want, got)
	_, err = parse("free/files many")
	require.Error(t, err)
}

func TestAJourneyIsCountedByWhatItEnters(t *testing.T) {
	all, err := calls("7\t0\ta.go:A\n7\t1\tb.go:T.B\n9\t0\tin/c.go:C\n7\t0\ta.go:A\n")
	require.NoError(t, err)
	assert.Equal(t, []call{{0, "a.go:A"}, {1, "b.go:T.B"}, {0, "in/c.go:C"}, {0, "a.go:A"}}, all)
	f := make(figures)
	f.count("free", all)
	assert.Equal(t, figures{"free/functions": 3, "free/files": 3, "free/packages": 2}, f)
}

func TestEveryFunctionButInitGetsARecorderAndNoLineMoves(t *testing.T) {
	source := "package p\n\nfunc init() { f() }\n\nfunc f() {\n\tg()\n}\n\nfunc (l *List[T]) Len() int { return 0 }\n"
	got, err := instrument("in/p.go", []byte(source))
	require.NoError(t, err)
	assert.Equal(t, "package p; import walkrecorder \"github.com/mongolock/mongolock/internal/test/walk/recorder\"\n\n"+
		"func init() { f() }\n\nfunc f() { defer walkrecorder.In(\"in/p.go:f\")(); \n\tg()\n}\n\n"+
		"func (l *List[T]) Len() int { defer walkrecorder.In(\"in/p.go:List.Len\")();  return 0 }\n", string(got))
}

func TestOnlyTypesWhoseMethodsAreSpreadAreCounted(t *testing.T) {
	method := func(receiver string) []byte { return []byte("package p\n\nfunc (" + receiver + ") M() {}\n") }
	f := make(figures)
	require.NoError(t, f.countTypes(map[string][]byte{
		"a.go": method("x *Spread"), "b.go": method("Spread"), "c.go": method("x Spread"), "in/d.go": method("x Spread"), "in/e.go": method("x Spread"),
	}))
	assert.Equal(t, figures{"type/mongolock.Spread": 3}, f)
}
