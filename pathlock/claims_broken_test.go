package pathlock_test

import (
	"context"
	"errors"
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
	change = func(*pathlock.Document, pathlock.Clock) (pathlock.Edit, error)
	update = func(ctx context.Context, s pathlock.Documents, tree string, c change) (time.Time, error)
)

// A broken storage is one in memory that neglects one duty.
type broken struct {
	pathlock.Documents // without a feed, and not prompt: like a remote one

	clock  func(pathlock.Clock) pathlock.Clock
	edit   func(pathlock.Edit) pathlock.Edit
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

func (b broken) Update(ctx context.Context, tree string, c change) (time.Time, error) {
	if b.ctx != nil {
		ctx = b.ctx(ctx)
	}
	if b.tree != nil {
		tree = b.tree(tree)
	}
	spoilt := func(d *pathlock.Document, now pathlock.Clock) (pathlock.Edit, error) {
		if b.clock != nil {
			now = b.clock(now)
		}
		e, err := c(d, now)
		if b.edit != nil {
			e = b.edit(e)
		}
		return e, err
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
		"OfManyAtOnceOneIsGranted": {update: func(ctx context.Context, s pathlock.Documents, tree string, c change) (time.Time, error) {
			var edit pathlock.Edit
			var verdict error
			err := errors.Join(s.View(ctx, tree, func(d *pathlock.Document, now pathlock.Clock) { edit, verdict = c(d, now) }), verdict)
			if err != nil {
				return time.Time{}, err
			}
			time.Sleep(5 * time.Millisecond) // and meanwhile another writes
			return s.Update(ctx, tree, func(*pathlock.Document, pathlock.Clock) (pathlock.Edit, error) { return edit, nil })
		}},
		"NoEditIsLost": {update: func(ctx context.Context, s pathlock.Documents, tree string, c change) (time.Time, error) {
			n := 0
			return s.Update(ctx, tree, func(d *pathlock.Document, now pathlock.Clock) (pathlock.Edit, error) {
				for range d.Locks() {
					n++
				}
				e, err := c(d, now)
				if n > 5 {
					e = pathlock.Edit{}
				}
				return e, err
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
		"PathsAndOwnersAreReturnedByteForByte": {edit: func(e pathlock.Edit) pathlock.Edit {
			for i := range e.Put {
				e.Put[i].Owner = []byte(strings.ToValidUTF8(string(e.Put[i].Owner), "?"))
			}
			return e
		}},
		"TimeoutsAreReturnedUnchanged": {edit: func(e pathlock.Edit) pathlock.Edit {
			for i := range e.Put {
				e.Put[i].Timeout = e.Put[i].Timeout.Round(time.Second)
			}
			return e
		}},
		"AnErrorOfTheDecisionIsReturnedAndNothingIsWritten": {update: func(ctx context.Context, s pathlock.Documents, tree string, c change) (at time.Time, err error) {
			at, _ = s.Update(ctx, tree, func(d *pathlock.Document, now pathlock.Clock) (e pathlock.Edit, _ error) {
				e, err = c(d, now)
				return e, nil
			})
			return at, err
		}},
		"AnUpdateWithAnEndedContextWritesNothing": {ctx: context.WithoutCancel},
		"TreesDoNotAffectEachOther":               {tree: func(string) string { return "the only one" }},
		"EachWatcherIsToldOfEachEventOnceAndInOrder": {edit: func(e pathlock.Edit) pathlock.Edit {
			if len(e.Events) > 0 {
				e.Events = append(e.Events, e.Events[len(e.Events)-1]) // twice
			}
			return e
		}},
		"ABurstOfEventsLosesNone": {edit: func(e pathlock.Edit) pathlock.Edit {
			e.Events = e.Events[:len(e.Events)/2]
			return e
		}},
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
