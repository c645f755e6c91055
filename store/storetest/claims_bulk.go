package storetest

import (
	"errors"
	"time"

	"github.com/mongolock/mongolock/store"
)

var bulkClaims = []claim{
	{"ABulkAnswersEachReleaseInItsOrder", aBulkAnswersEachReleaseInItsOrder},
	{"ABulkOfReleasesChangesOnlyWhatItNames", aBulkOfReleasesChangesOnlyWhatItNames},
	{"ABulkOfReleasesKeepsTheKeysThatItShall", aBulkOfReleasesKeepsTheKeysThatItShall},
	{"ABulkOfReleasesCanBeEmptyOrFull", aBulkOfReleasesCanBeEmptyOrFull},
	{"ABulkThatIsSentAgainAnswersErrGone", aBulkThatIsSentAgainAnswersErrGone},
}

var sharedBulkClaims = []claim{
	{"SharersReleasedInOneBulkRemoveTheRecord", sharersReleasedInOneBulkRemoveTheRecord},
	{"ABulkOfSharersLeavesTheOthersAndTheLine", aBulkOfSharersLeavesTheOthersAndTheLine},
}

// releaseMany releases holders in one call.
func (e *env) releaseMany(batch ...store.Ending) []store.Ended {
	e.Helper()
	answers := e.store.Release(e.ctx(), batch)
	if len(answers) != len(batch) {
		e.Fatalf("a bulk of %d releases got %d answers", len(batch), len(answers))
	}
	return answers
}

// ended checks one answer of a release: how many holders are left, and who waits.
func (e *env) ended(what string, got store.Ended, left int, line ...store.Claim) {
	e.Helper()
	if got.Err != nil || got.Left != left {
		e.Errorf("release of %s: %d holders are left, %v; want %d", what, got.Left, got.Err, left)
	}
	e.places("release of "+what, got.Line, line...)
}

func aBulkAnswersEachReleaseInItsOrder(e *env) {
	alone, awaited := e.hold(e.key("z alone"), long), e.hold(e.key("y awaited"), long)
	waiter := e.waits(e.claim(awaited.Key, long))
	absent, last := e.claim(e.key("x free"), long), e.hold(e.key("a last"), long)
	answers := e.releaseMany(store.Ending{Ref: alone.Ref}, store.Ending{Ref: absent.Ref}, store.Ending{Ref: awaited.Ref}, store.Ending{Ref: last.Ref})
	e.ended("a key that nobody waits for", answers[0], 0)
	e.gone("release of a free key in a bulk", answers[1].Err)
	e.ended("a key that somebody waits for", answers[2], 0, waiter)
	e.ended("another key", answers[3], 0)
	for _, h := range []held{alone, awaited, last} {
		e.free(h.Key)
	}
}

func aBulkOfReleasesChangesOnlyWhatItNames(e *env) {
	h, other := e.hold(e.key("held"), long), e.hold(e.key("another"), long)
	gone := e.hold(e.key("released"), long)
	wrong := store.Ref{Key: h.Key, ID: e.claim(h.Key, long).ID, Mode: store.Exclusive}
	crossed := store.Ref{Key: other.Key, ID: h.ID, Mode: store.Exclusive}
	e.unchanged(h.Key, func() {
		e.unchanged(other.Key, func() {
			for _, keep := range []time.Duration{0, 2 * long} {
				answers := e.releaseMany(store.Ending{Ref: wrong, Keep: keep}, store.Ending{Ref: gone.Ref}, store.Ending{Ref: crossed, Keep: keep})
				e.gone("release of another ID in a bulk", answers[0].Err)
				e.gone("release of another key in a bulk", answers[2].Err)
			}
		})
	})
	e.free(gone.Key)
}

func aBulkOfReleasesKeepsTheKeysThatItShall(e *env) {
	kept, over, freed := e.hold(e.key("kept"), long), e.hold(e.key("over"), long), e.hold(e.key("freed"), long)
	e.sleepUntil(over.replied.Add(2*time.Millisecond + e.slack()))
	answers := e.releaseMany(
		store.Ending{Ref: kept.Ref, Keep: 2 * long}, store.Ending{Ref: over.Ref, Keep: time.Millisecond}, store.Ending{Ref: freed.Ref})
	e.ended("a kept key", answers[0], 1)
	e.ended("a key whose time is over", answers[1], 0)
	e.ended("a key", answers[2], 0)
	e.free(freed.Key)
	e.free(over.Key)
	e.refused(e.claim(kept.Key, long))
	_, err := e.renew(kept.Ref, 4*long)
	e.gone("renewal of a kept key", err)
	status := e.look(kept.Key)
	if left := status.Left(); left > 2*long+e.slack() || left < long {
		e.Errorf("the key was kept for %v, but %v are left", 2*long, left)
	}
}

func aBulkOfReleasesCanBeEmptyOrFull(e *env) {
	e.releaseMany()
	var batch []store.Ending
	for range e.rounds(1000, 120) {
		batch = append(batch, store.Ending{Ref: e.hold(e.key("one of many"), long).Ref})
	}
	for _, answer := range e.releaseMany(batch...) {
		e.ended("one of many", answer, 0)
	}
	for _, r := range batch {
		e.free(r.Key)
	}
}

func aBulkThatIsSentAgainAnswersErrGone(e *env) {
	a, b := e.hold(e.key("released"), long), e.hold(e.key("released"), long)
	batch := []store.Ending{{Ref: a.Ref}, {Ref: b.Ref}}
	e.releaseMany(batch...)
	next := e.hold(a.Key, long)
	e.unchanged(next.Key, func() {
		for _, answer := range e.releaseMany(batch...) {
			e.gone("the second release in a bulk", answer.Err)
		}
	})
}

func sharersReleasedInOneBulkRemoveTheRecord(e *env) {
	var batch []store.Ending
	key, permits := e.key("shared"), e.key("permits")
	for _, h := range e.readers(key, 3) {
		batch = append(batch, store.Ending{Ref: h.Ref})
	}
	for range 2 {
		batch = append(batch, store.Ending{Ref: e.granted(e.permit(permits, 2, long)).Ref})
	}
	waiter := e.waits(e.permit(permits, 2, long))
	for i, answer := range e.releaseMany(batch...) {
		if answer.Err != nil {
			e.Errorf("release of a sharer: %v", answer.Err)
		}
		if i >= 3 {
			e.places("release of a permit", answer.Line, waiter)
		}
	}
	e.free(key)
	e.lists(key)
	e.free(permits)
	e.line(permits, waiter)
	for _, answer := range e.releaseMany(batch...) {
		if !errors.Is(answer.Err, store.ErrGone) {
			e.Errorf("the second release of a sharer: %v, want ErrGone", answer.Err)
		}
	}
}

func aBulkOfSharersLeavesTheOthersAndTheLine(e *env) {
	key := e.key("shared")
	all := e.readers(key, 4)
	writer := e.waits(e.claim(key, long))
	for _, answer := range e.releaseMany(store.Ending{Ref: all[0].Ref}, store.Ending{Ref: all[2].Ref}) {
		e.places("release of a sharer", answer.Line, writer)
	}
	e.heldBy(key, all[1], all[3])
	e.releaseMany(store.Ending{Ref: all[1].Ref}, store.Ending{Ref: all[3].Ref})
	e.free(key)
	e.line(key, writer)
	e.refused(e.reader(key, long))
	e.granted(e.anew(writer))
}
