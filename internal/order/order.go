// Package order notices keys that callers wait for in different orders: two such callers can wait
// for each other for ever.
//
// Keys belong to classes: that of "order:17" is "order", that of "tenant/1/order/5" "tenant/*/order".
// One caller that holds an "order" and waits for a "customer", and another that does the reverse,
// can block each other. A Book notes which class was waited for under which, and where in the
// program. Nothing has to go wrong for a conflict to be found: both ways have to be taken once. Of
// keys of one class it notes the keys themselves: which order of them is right nobody can tell.
package order

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// most is how many pairs of classes a Book notes. Keys whose classes have no end are not worth more.
const most = 1000

// A Book is safe for concurrent use. The zero Book is ready.
type Book struct {
	mu    sync.Mutex
	under map[string]map[string]string // where the second class was waited for under the first
	pairs int
}

// A Conflict says where keys were taken in different orders.
type Conflict struct {
	Here  string // as in: customer under order, at pay.go:12
	Other string
}

// Wait notes that one key is waited for while another is held. It returns a Conflict the first time
// that this contradicts an earlier wait.
func (b *Book) Wait(held, wanted string) *Conflict {
	from, to := class(held), class(wanted)
	if from == to {
		from, to = held, wanted
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.under[from][to]; known || b.pairs == most {
		return nil
	}
	here := fmt.Sprintf("%s under %s, at %s", to, from, caller())
	if b.under == nil {
		b.under = make(map[string]map[string]string)
	}
	if b.under[from] == nil {
		b.under[from] = make(map[string]string)
	}
	b.under[from][to] = here
	b.pairs++
	waits := b.path(to, from, map[string]bool{})
	if len(waits) == 0 {
		return nil
	}
	if len(waits) > shown {
		waits = append(waits[:shown], "…")
	}
	return &Conflict{here, strings.Join(waits, "; ")}
}

// shown is how many waits a Conflict names.
const shown = 4

// path returns the waits that lead from one class to another, if any do.
func (b *Book) path(from, to string, seen map[string]bool) []string {
	if at, ok := b.under[from][to]; ok {
		return []string{at}
	}
	seen[from] = true
	for _, next := range slices.Sorted(maps.Keys(b.under[from])) {
		if seen[next] {
			continue
		}
		if rest := b.path(next, to, seen); rest != nil {
			return append([]string{b.under[from][next]}, rest...)
		}
	}
	return nil
}

// class returns what comes before the last colon or slash of a key, without the parts that have a
// digit: they number things.
func class(key string) string {
	i := strings.LastIndexAny(key, ":/")
	if i <= 0 {
		return key
	}
	var b strings.Builder
	for part := range strings.FieldsFuncSeq(key[:i], isMark) {
		if b.Len() > 0 {
			b.WriteByte('/')
		}
		if strings.ContainsFunc(part, unicode.IsDigit) {
			part = "*"
		}
		b.WriteString(part)
	}
	return b.String()
}

func isMark(r rune) bool { return r == ':' || r == '/' }

const module = "github.com/mongolock/mongolock"

// caller returns where this library was called.
func caller() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		ours := strings.HasPrefix(f.Function, module+".") || strings.HasPrefix(f.Function, module+"/") && !strings.Contains(f.Function, "_test.")
		if !ours && f.File != "" && !strings.HasPrefix(f.Function, "runtime.") {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}
