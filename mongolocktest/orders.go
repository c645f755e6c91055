package mongolocktest

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/internal/leasectx"
)

// Orders returns a Locker that acquires as locker does, and fails the test if keys are taken in
// different orders. Two callers that do so can wait for each other for ever. Nothing has to go wrong
// for the failure: the test has to take both ways once. It names both places. The Lockers of
// this package do the same by themselves.
//
// A wait is noted if it is under a lease, as the context of the wait shows (that of Do's function, or
// of Lease.Context). If "order:17" is waited for under "customer:3" in one place, and another customer
// under an order in another, the test fails. A key's class is what comes before its last colon or
// slash, without parts that have a digit. Of keys of one class only the same two count. If a wait is
// under several leases it counts under the outermost: what is under that is in order if all take it.
// Readers count too, because a new reader waits behind a writer that waits.
func Orders(t testing.TB, locker mongolock.Locker) mongolock.Locker {
	return &ordered{locker, newBook(t)}
}

type ordered struct {
	mongolock.Locker
	book *book
}

func (o *ordered) Acquire(ctx context.Context, key string, opts ...mongolock.AcquireOption) (*mongolock.Lease, error) {
	o.book.waits(ctx, key)
	return o.Locker.Acquire(ctx, key, opts...)
}

func (o *ordered) noted() *book { return o.book }

func (l *Locker) noted() *book { return l.orders }

func init() {
	inside.Waits = func(ctx context.Context, locker any, keys []string) {
		if in, ok := locker.(interface{ noted() *book }); ok {
			for _, key := range keys {
				in.noted().waits(ctx, key)
			}
		}
	}
}

// A book notes which key was waited for under which, and where in the program.
type book struct {
	t testing.TB

	mu    sync.Mutex // protects what follows
	over  bool       // the test is: it may not be told of what the code under test still does
	under map[string]map[string]string
}

func newBook(t testing.TB) *book {
	b := &book{t: t, under: make(map[string]map[string]string)}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.over = true
	})
	return b
}

// waits notes that a key is waited for under the leases that made ctx, and fails the test the first
// time that this contradicts an earlier wait.
func (b *book) waits(ctx context.Context, wanted string) {
	held := ""
	for owner := range leasectx.Owners(ctx) { // the innermost first
		l, ok := owner.(*mongolock.Lease)
		switch {
		case !ok || l.Err() != nil:
		case l.Key() == wanted:
			return // which is refused at once, or is the key of another collection
		default:
			held = l.Key()
		}
	}
	if held != "" {
		b.note(held, wanted)
	}
}

func (b *book) note(held, wanted string) {
	from, to := class(held), class(wanted)
	if from == to {
		from, to = held, wanted
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.under[from][to]; known || b.over {
		return
	}
	here := fmt.Sprintf("%s under %s, at %s", to, from, caller())
	if b.under[from] == nil {
		b.under[from] = make(map[string]string)
	}
	b.under[from][to] = here
	if way := b.way(to, from, make(map[string]bool)); way != nil {
		b.t.Errorf("mongolocktest: keys are taken in different orders, so two callers can wait for each other: %s; but %s. "+
			"Take them in one order everywhere, or together with AcquireAll.", here, strings.Join(way, "; "))
	}
}

// way returns the waits that lead from one class to another, if any do.
func (b *book) way(from, to string, seen map[string]bool) []string {
	if at, ok := b.under[from][to]; ok {
		return []string{at}
	}
	seen[from] = true
	for _, next := range slices.Sorted(maps.Keys(b.under[from])) {
		if seen[next] {
			continue
		}
		if rest := b.way(next, to, seen); rest != nil {
			return append([]string{b.under[from][next]}, rest...)
		}
	}
	return nil
}

// class returns what comes before the last colon or slash of a key, without the parts that have a
// digit, because they number things: "order" of "order:17", "tenant/*/order" of "tenant/1/order/5".
func class(key string) string {
	i := strings.LastIndexAny(key, ":/")
	if i <= 0 {
		return key
	}
	var parts []string
	for part := range strings.FieldsFuncSeq(key[:i], func(r rune) bool { return r == ':' || r == '/' }) {
		if strings.ContainsFunc(part, unicode.IsDigit) {
			part = "*"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "/")
}

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
