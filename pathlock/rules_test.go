package pathlock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock/pathlock"
)

// The rules of the package comment a second time: slow, plain, and without anything of
// the code that they judge.

// lockable are the paths that the tests lock and change: every relation that two paths
// can have, at several depths, and names that begin alike.
var lockable = []string{"/", "/a", "/ab", "/a/b", "/a/bb", "/a/b/c", "/b", "/b/a"}

// universe are the lockable paths and, below each of them, one that is never locked: so
// "everything below" is never empty.
var universe = func() []string {
	var all []string
	for _, p := range lockable {
		all = append(all, p, strings.TrimSuffix(p, "/")+"/leaf")
	}
	return all
}()

func parts(p string) []string {
	return slices.DeleteFunc(strings.Split(p, "/"), func(s string) bool { return s == "" })
}

// isAbove compares lists of names, not texts.
func isAbove(p, q string) bool {
	a, b := parts(p), parts(q)
	return len(a) < len(b) && slices.Equal(a, b[:len(a)])
}

type held struct {
	path  string
	mode  pathlock.Mode
	depth pathlock.Depth
	token string
}

func ruleOverlap(requested, other held) bool {
	same := requested.path == other.path
	ancestor := isAbove(requested.path, other.path) && requested.depth == pathlock.Infinity
	descendant := isAbove(other.path, requested.path) && other.depth == pathlock.Infinity
	return same || ancestor || descendant
}

func ruleConflict(requested, other held) bool {
	return ruleOverlap(requested, other) && (requested.mode != pathlock.Shared || other.mode != pathlock.Shared)
}

func ruleCovers(l held, path string) bool {
	return l.path == path || l.depth == pathlock.Infinity && isAbove(l.path, path)
}

// ruleMay reports whether a writer may make a change: each path that the change touches
// is covered by no lock, or by one that the writer has.
func ruleMay(locks []held, tokens []string, c pathlock.Change) bool {
	touched := []string{c.Path}
	if c == pathlock.Delete(c.Path) {
		for _, p := range universe {
			if isAbove(c.Path, p) {
				touched = append(touched, p)
			}
			if isAbove(p, c.Path) && len(parts(p)) == len(parts(c.Path))-1 {
				touched = append(touched, p) // the parent
			}
		}
	}
	for _, p := range touched {
		covered, mine := false, false
		for _, l := range locks {
			if ruleCovers(l, p) {
				covered = true
				mine = mine || slices.Contains(tokens, l.token)
			}
		}
		if covered && !mine {
			return false
		}
	}
	return true
}

var (
	modes  = []pathlock.Mode{pathlock.Exclusive, pathlock.Shared}
	depths = []pathlock.Depth{pathlock.Zero, pathlock.Infinity}
)

func newTree(t testing.TB, opts ...pathlock.Option) *pathlock.Tree {
	t.Helper()
	tree, err := pathlock.New(pathlock.InMemory(), "test", opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tree.Close() })
	return tree
}

func (h held) request() pathlock.Request {
	return pathlock.Request{Path: h.path, Mode: h.mode, Depth: h.depth, Timeouts: []time.Duration{time.Hour}}
}

func allHeld() []held {
	var all []held
	for _, p := range lockable {
		for _, m := range modes {
			for _, d := range depths {
				all = append(all, held{path: p, mode: m, depth: d})
			}
		}
	}
	return all
}

// A pair is two locks, requested one after the other, and the answer to the second.
type pair struct {
	first, second held
	refused       bool
	misplaced     string // the conflict, if it is not the first lock in its place
}

var onePairs sync.Once
var pairs []pair // of every mode, depth and place

func allPairs(t *testing.T) []pair {
	t.Helper()
	onePairs.Do(func() {
		for _, first := range allHeld() {
			for _, second := range allHeld() {
				pairs = append(pairs, askForBoth(t, first, second))
			}
		}
	})
	return pairs
}

func askForBoth(t *testing.T, first, second held) pair {
	t.Helper()
	tree := newTree(t)
	one, err := tree.Lock(t.Context(), first.request())
	require.NoError(t, err)
	two, err := tree.Lock(t.Context(), second.request())
	var conflict *pathlock.ConflictError
	refused := errors.As(err, &conflict)
	p := pair{first: first, second: second, refused: refused}
	if !refused {
		if err != nil || two.Token == one.Token {
			t.Fatal(err)
		}
		return p
	}
	place := conflict.Same
	switch {
	case isAbove(first.path, second.path):
		place = conflict.Parents
	case isAbove(second.path, first.path):
		place = conflict.Children
	}
	if conflict.Len() != 1 || len(place) != 1 || place[0].Token != one.Token {
		p.misplaced = fmt.Sprintf("%+v", conflict.Affecting)
	}
	return p
}

// disagreements compares the code with a rule for every pair.
func disagreements(t *testing.T, rule func(requested, other held) bool) (wrong []string, compared int) {
	t.Helper()
	for _, p := range allPairs(t) {
		if p.refused != rule(p.second, p.first) {
			wrong = append(wrong, fmt.Sprintf("%v held, %v requested: refused %v", p.first, p.second, p.refused))
		}
		if p.misplaced != "" {
			wrong = append(wrong, fmt.Sprintf("%v held, %v requested: told %s", p.first, p.second, p.misplaced))
		}
	}
	return wrong, len(allPairs(t))
}

func TestEveryModeDepthAndRelationFollowsTheRule(t *testing.T) {
	wrong, compared := disagreements(t, ruleConflict)
	assert.Empty(t, wrong)
	assert.Equal(t, len(lockable)*len(lockable)*16, compared, "pairs compared")
}

// The control: the comparison has to notice each of these rules, which are nearly right.
func TestControlRulesThatAreNearlyRightAreNoticed(t *testing.T) {
	for name, rule := range map[string]func(requested, other held) bool{
		"paths as text": func(r, o held) bool {
			text := r
			if strings.HasPrefix(r.path, o.path) && o.depth == pathlock.Infinity {
				text.path = o.path
			}
			return ruleConflict(text, o)
		},
		"two shared conflict":          ruleOverlap,
		"depth counts upwards only":    func(r, o held) bool { o.depth = pathlock.Infinity; return ruleConflict(r, o) },
		"depth 0 guards the children":  func(r, o held) bool { r.depth = pathlock.Infinity; return ruleConflict(r, o) },
		"only the same path":           func(r, o held) bool { return r.path == o.path && ruleConflict(r, o) },
		"a shared request always wins": func(r, o held) bool { return r.mode != pathlock.Shared && ruleConflict(r, o) },
	} {
		wrong, _ := disagreements(t, rule)
		assert.NotEmpty(t, wrong, "no disagreement with: %s", name)
	}
}

// someLocks makes a tree and requests locks at random. It returns those that were granted.
func someLocks(t *testing.T, random *rand.Rand) (*pathlock.Tree, []held) {
	t.Helper()
	tree := newTree(t)
	var locks []held
	for range 6 {
		h := held{lockable[random.IntN(len(lockable))], modes[random.IntN(2)], depths[random.IntN(2)], ""}
		l, err := tree.Lock(t.Context(), h.request())
		want := !slices.ContainsFunc(locks, func(o held) bool { return ruleConflict(h, o) })
		if (err == nil) != want {
			t.Fatalf("%v beside %v: %v", h, locks, err)
		}
		if err == nil {
			h.token = l.Token
			locks = append(locks, h)
		}
	}
	return tree, locks
}

func TestAConflictListsAllLocksInTheWayByPlace(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		tree, locks := someLocks(t, random)
		h := held{lockable[random.IntN(len(lockable))], modes[random.IntN(2)], depths[random.IntN(2)], ""}
		want := map[string][]string{}
		for _, o := range locks {
			switch {
			case !ruleConflict(h, o):
			case isAbove(o.path, h.path):
				want["parents"] = append(want["parents"], o.token)
			case isAbove(h.path, o.path):
				want["children"] = append(want["children"], o.token)
			default:
				want["same"] = append(want["same"], o.token)
			}
		}
		_, err := tree.Lock(t.Context(), h.request())
		got := map[string][]string{}
		var c *pathlock.ConflictError
		if errors.As(err, &c) {
			for name, list := range map[string][]pathlock.Lock{"parents": c.Parents, "same": c.Same, "children": c.Children} {
				for _, l := range list {
					got[name] = append(got[name], l.Token)
				}
			}
		}
		for _, place := range []string{"parents", "same", "children"} {
			require.ElementsMatch(t, want[place], got[place], "%s in the way of %v among %v", place, h, locks)
		}
	}
}

func TestAffectingReturnsTheLocksAroundAPath(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		tree, locks := someLocks(t, random)
		path := lockable[random.IntN(len(lockable))]
		depth := depths[random.IntN(2)]
		children := depth == pathlock.Infinity
		a, err := tree.Affecting(t.Context(), path, depth)
		require.NoError(t, err)
		var got, want []string
		for _, l := range slices.Concat(a.Parents, a.Same, a.Children) {
			got = append(got, l.Token)
		}
		for _, l := range locks {
			if l.path == path || children && isAbove(path, l.path) || isAbove(l.path, path) && l.depth == pathlock.Infinity {
				want = append(want, l.token)
			}
		}
		require.ElementsMatch(t, want, got, "%q, depth %s, among %v", path, depth, locks)
	}
}

// A judgement is Confirm's answer to a change, with random locks and tokens.
type judgement struct {
	locks  []held
	tokens []string
	change pathlock.Change
	err    error
}

var oneJudgements sync.Once
var judgements []judgement

func someJudgements(t *testing.T) []judgement {
	t.Helper()
	oneJudgements.Do(func() {
		random := rand.New(rand.NewPCG(5, 6))
		for range 3000 {
			var j judgement
			var tree *pathlock.Tree
			tree, j.locks = someLocks(t, random)
			for _, l := range j.locks {
				if random.IntN(2) == 0 {
					j.tokens = append(j.tokens, l.token)
				}
			}
			j.change = []func(string) pathlock.Change{pathlock.Modify, pathlock.AddTo, pathlock.Delete}[random.IntN(3)](lockable[random.IntN(len(lockable))])
			if j.err = tree.Confirm(t.Context(), j.tokens, j.change); j.err != nil && !errors.Is(j.err, pathlock.ErrLocked) {
				t.Fatal(j.err)
			}
			judgements = append(judgements, j)
		}
	})
	return judgements
}

// misjudged compares Confirm with a rule.
func misjudged(t *testing.T, rule func([]held, []string, pathlock.Change) bool) (wrong []string, no int) {
	t.Helper()
	for _, j := range someJudgements(t) {
		if j.err != nil {
			no++
		}
		if (j.err == nil) != rule(j.locks, j.tokens, j.change) {
			wrong = append(wrong, fmt.Sprintf("%v with %v among %v: %v", j.change, j.tokens, j.locks, j.err))
		}
	}
	return wrong, no
}

func TestConfirmFollowsTheRule(t *testing.T) {
	wrong, no := misjudged(t, ruleMay)
	assert.Empty(t, wrong)
	assert.InDelta(t, 1500, no, 1000, "of 3000 changes so many were refused: the test looks at one side only")
}

func TestControlConfirmationRulesThatAreNearlyRightAreNoticed(t *testing.T) {
	for name, rule := range map[string]func([]held, []string, pathlock.Change) bool{
		"a delete is a change of the path alone": func(l []held, tokens []string, c pathlock.Change) bool {
			return ruleMay(l, tokens, pathlock.Modify(c.Path))
		},
		"all tokens are needed": func(l []held, tokens []string, c pathlock.Change) bool {
			for _, h := range l {
				if ruleCovers(h, c.Path) && !slices.Contains(tokens, h.token) {
					return false
				}
			}
			return ruleMay(l, tokens, c)
		},
		"depth is not looked at": func(l []held, tokens []string, c pathlock.Change) bool {
			l = slices.Clone(l)
			for i := range l {
				l[i].depth = pathlock.Zero
			}
			return ruleMay(l, tokens, c)
		},
	} {
		wrong, _ := misjudged(t, rule)
		assert.NotEmpty(t, wrong, "no disagreement with: %s", name)
	}
}

func TestDepth0OnACollectionGuardsItsMembershipNotItsChildren(t *testing.T) {
	tree := newTree(t)
	_, err := tree.Lock(t.Context(), held{path: "/c", mode: pathlock.Exclusive, depth: pathlock.Zero}.request())
	require.NoError(t, err)
	for _, c := range []pathlock.Change{pathlock.AddTo("/c"), pathlock.Delete("/c/child"), pathlock.Delete("/c"), pathlock.Modify("/c")} {
		assert.ErrorIs(t, tree.Confirm(t.Context(), nil, c), pathlock.ErrLocked, "%v", c)
	}
	for _, c := range []pathlock.Change{pathlock.Modify("/c/child"), pathlock.AddTo("/c/child"), pathlock.Delete("/c/child/x")} {
		assert.NoError(t, tree.Confirm(t.Context(), nil, c), "%v", c)
	}
}
