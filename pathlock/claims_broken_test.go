package pathlock_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongolock/mongolock/pathlock"
)

type (
	look   = func(*pathlock.Document, pathlock.Clock)
	update = func(ctx context.Context, s pathlock.Documents, tree string, c look) (time.Time, error)
)

// A broken storage is one in memory that neglects one duty.
type broken struct {
	pathlock.Documents // without a feed, and not prompt: like a remote one

	clock  func(pathlock.Clock) pathlock.Clock
	spoil  func(d *pathlock.Document) // what a step makes of a document
	update update
	ctx    func(context.Context) context.Context
	tree   func(string) string
}

func (b broken) View(ctx context.Context, tree string, l look) error {
	if b.ctx != nil {
		ctx = b.ctx(ctx)
	}
	if b.tree != nil {
		tree = b.tree(tree)
	}
	return b.Documents.View(ctx, tree, func(d *pathlock.Document, now pathlock.Clock) {
		if b.clock != nil {
			now = b.clock(now)
		}
		l(d, now)
	})
}

func (b broken) Update(ctx context.Context, tree string, c look) (time.Time, error) {
	if b.ctx != nil {
		ctx = b.ctx(ctx)
	}
	if b.tree != nil {
		tree = b.tree(tree)
	}
	spoilt := func(d *pathlock.Document, now pathlock.Clock) {
		if b.clock != nil {
			now = b.clock(now)
		}
		c(d, now)
		if b.spoil != nil {
			b.spoil(d)
		}
	}
	if b.update != nil {
		return b.update(ctx, b.Documents, tree, spoilt)
	}
	return b.Documents.Update(ctx, tree, spoilt)
}

func (b broken) Open(t testing.TB) pathlock.Storage {
	s, err := pathlock.OnDocuments(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The control of the suite: each neglected duty is noticed by the claim that names it.
func TestControlTheSuiteNoticesEachNeglectedDuty(t *testing.T) {
	for claimed, b := range map[string]broken{
		"OfManyAtOnceOneIsGranted": {update: func(ctx context.Context, s pathlock.Documents, tree string, c look) (time.Time, error) {
			var later *pathlock.Document
			err := s.View(ctx, tree, func(d *pathlock.Document, now pathlock.Clock) {
				later = d.Copy()
				c(later, now)
			})
			if err != nil {
				return time.Time{}, err
			}
			time.Sleep(5 * time.Millisecond) // and meanwhile another writes
			return s.Update(ctx, tree, func(d *pathlock.Document, _ pathlock.Clock) { *d = *later })
		}},
		"NoEditIsLost": {update: func(ctx context.Context, s pathlock.Documents, tree string, c look) (time.Time, error) {
			return s.Update(ctx, tree, func(d *pathlock.Document, now pathlock.Clock) {
				if len(d.Locks()) > 3 {
					d = d.Copy()
				}
				c(d, now)
			})
		}},
		"ALockLastsAsLongAsItsAnswerSaysAndNotMuchLonger": {clock: func(c pathlock.Clock) pathlock.Clock {
			c.Earliest = c.Earliest.Add(short / 2) // judges by a clock that is ahead
			return c
		}},
		"ALockThatHasRunOutCountsForNothingThoughItsRecordExists": {clock: func(c pathlock.Clock) pathlock.Clock {
			c.Earliest = time.Time{} // waits for a janitor
			return c
		}},
		"PathsAndOwnersAreReturnedByteForByte": {spoil: func(d *pathlock.Document) {
			for _, l := range d.Locks() {
				l.Owner = []byte(strings.ToValidUTF8(string(l.Owner), "?"))
				d.Put(l)
			}
		}},
		"TimeoutsAreReturnedUnchanged": {spoil: func(d *pathlock.Document) {
			for _, l := range d.Locks() {
				l.Timeout = l.Timeout.Round(time.Second)
				d.Put(l)
			}
		}},
		"AnUpdateWithAnEndedContextWritesNothing": {ctx: context.WithoutCancel},
		"TreesDoNotAffectEachOther":               {tree: func(string) string { return "the only one" }},
	} {
		t.Run(claimed, func(t *testing.T) {
			if show(t, claimed, b) == "" {
				t.Error("the claim holds in spite of the neglect")
			}
		})
	}
}

// With nothing neglected each claim holds: so it is the neglect that is noticed.
func TestControlTheSuitePassesAStorageThatNeglectsNothing(t *testing.T) {
	for _, c := range claimsOn(broken{}, true) {
		t.Run(c.name, func(t *testing.T) {
			if said := show(t, c.name, broken{}); said != "" {
				t.Error(said)
			}
		})
	}
}

// show runs a claim on a place, in virtual time, and returns how it failed.
func show(t *testing.T, name string, b broken) (said string) {
	t.Helper()
	for _, c := range claimsOn(b, true) {
		if c.name != name {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			b.Documents = pathlock.NewMemory()
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.body(newEnv(r, func(testing.TB) Place { return b }))
			}()
			<-done
			said = strings.Join(r.said, "\n")
		})
		return said
	}
	t.Fatalf("no claim is called %s", name)
	return ""
}

// A recorder records failures instead of failing.
type recorder struct {
	testing.TB
	mu   sync.Mutex // protects said
	said []string
}

func (r *recorder) Error(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprint(args...))
}

func (r *recorder) Errorf(f string, args ...any) { r.Error(fmt.Sprintf(f, args...)) }

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(f string, args ...any) { r.Fatal(fmt.Sprintf(f, args...)) }
