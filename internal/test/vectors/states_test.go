package vectors

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/store"
)

const (
	key = "nightly-report"
	ttl = 30 * time.Second

	// The IDs of claims.
	first  = "FIRST"
	second = "SECOND"

	// Two places in line: of a process that hears notices, and of one that polls. And those of two
	// readers, and of a claim that takes two of three permits.
	listener store.Place = "x:ADDRESS:LISTENER"
	poller   store.Place = "x::POLLER"
	reading  store.Place = "s:ADDRESS:READING"
	reading2 store.Place = "s::READING"
	heavy    store.Place = "p3w2:ADDRESS:HEAVY"
)

// A state is how a key is, and what may happen to it then. Each has a file.
type state struct {
	name, says string
	before     func(s *fixture) // makes it so
	steps      []step
}

// A step is one thing that a process does, by the library's store.
type step struct {
	says string
	do   func(s *fixture)
}

func states() []state {
	return []state{
		{"free", "a key without a document", func(*fixture) {}, []step{
			{"an acquire inserts the document", func(s *fixture) { s.acquire(claim(first)) }},
			{"a release whose reply was lost, sent again, finds nothing", func(s *fixture) { s.release(first, store.ErrGone) }},
			{"the clean-up of a claim that never arrived finds nothing", func(s *fixture) { s.undo(claim(first)) }},
			{"a claim that waits, and takes the key to be held, finds no line to join", func(s *fixture) { s.takes(known(waiting(second, listener))) }},
			{"the first grant makes the TTL index", func(s *fixture) { s.ok(s.store.EnsureIndex(s.ctx)) }},
		}},
		{"held", "a key that is held, and that nobody waits for", holding, []step{
			{"a claim that does not wait is refused, and reads by whom", func(s *fixture) { s.refused(claim(second)) }},
			{"a claim that waits is refused, and joins the line", func(s *fixture) { s.refused(waiting(second, listener)) }},
			{"a claim that knows the key to be held looks, and no more", func(s *fixture) { s.refused(known(claim(second))) }},
			{"the holder renews", func(s *fixture) { s.renew(first, nil) }},
			{"a process that cannot tell whether it may trust its lease renews", func(s *fixture) { s.store = s.another(); s.renew(first, nil) }},
			{"a renewal of one that does not hold the key finds nothing", func(s *fixture) { s.renew(second, store.ErrGone) }},
			{"a late copy of an older renewal finds nothing", func(s *fixture) {
				s.renew(first, nil)
				late := s.last()
				s.renew(first, nil)
				s.again(late)
			}},
			{"the holder releases, and the document goes", func(s *fixture) { s.release(first, nil) }},
			{"a release of one that does not hold the key finds nothing", func(s *fixture) { s.release(second, store.ErrGone) }},
			{"a claim whose reply was lost is cleaned up", func(s *fixture) { s.undo(claim(first)) }},
			{"an operator breaks the lock", func(s *fixture) { s.ok(s.store.Break(s.ctx, ref(first), "it hangs", false)) }},
			{"the holder keeps the key for twenty seconds more as it releases it", func(s *fixture) { s.keeps(claim(first)) }},
			{"the holder hands the key over to another claim of its process", func(s *fixture) { s.handsOver(first, second, nil) }},
			{"a process that was not granted the lease hands it over", func(s *fixture) { s.store = s.another(); s.handsOver(first, second, nil) }},
			{"a hand-over of a lease that does not hold the key finds nothing", func(s *fixture) { s.handsOver(second, "THIRD", store.ErrGone) }},
			{"a late copy of a hand-over finds nothing", func(s *fixture) {
				s.handsOver(first, second, nil)
				late := s.last()
				s.release(second, nil)
				s.again(late)
			}},
			{"a hand-over whose reply was lost is cleaned up, whichever of the two holds the key", func(s *fixture) { s.undoHandOver(second, first) }},
		}},
		{"yielding", "a key whose holder wants to hear of those who wait", func(s *fixture) {
			c := claim(first)
			c.Yields = listener.Address()
			s.acquire(c)
		}, []step{
			{"a claim that waits is refused, joins the line, and tells the holder", func(s *fixture) { s.asks(waiting(second, poller)) }},
		}},
		{"broken", "a key whose holder an operator has broken", func(s *fixture) {
			holding(s)
			s.ok(s.store.Break(s.ctx, ref(first), "it hangs", false))
		}, []step{
			{"a renewal finds nothing, and reads why", func(s *fixture) { s.broken(first) }},
			{"the holder releases", func(s *fixture) { s.release(first, nil) }},
			{"the operator removes the holder", func(s *fixture) { s.ok(s.store.Break(s.ctx, ref(first), "it hangs", true)) }},
		}},
		{"kept", "a key that was released, and that its holder keeps for twenty seconds more", func(s *fixture) { holding(s); s.keeps(claim(first)) }, []step{
			{"a claim that does not wait is refused", func(s *fixture) { s.refused(claim(second)) }},
			{"a renewal finds nothing", func(s *fixture) { s.renew(first, store.ErrGone) }},
			{"a hand-over finds nothing", func(s *fixture) { s.handsOver(first, second, store.ErrGone) }},
			{"an operator removes the holder", func(s *fixture) { s.ok(s.store.Break(s.ctx, ref(first), "it is needed", true)) }},
		}},
		{"awaited", "a key that is held, and two wait for it", awaited, []step{
			{"the first in line still waits", func(s *fixture) { s.refused(standing(second, listener)) }},
			{"the first was passed, and stands before the second, which came later", func(s *fixture) {
				s.leave(listener)
				c := standing(second, listener)
				c.Since = time.Now().Add(-time.Minute)
				s.refused(c)
			}},
			{"the second leaves the line", func(s *fixture) { s.leave(poller) }},
			{"the holder renews, and the line stays", func(s *fixture) { s.renew(first, nil) }},
			{"the holder releases, not knowing of the line, and tells the first in it", func(s *fixture) { s.release(first, nil); s.tell(store.KindOffered, listener) }},
			{"the holder releases, knowing of the line, and tells the first in it", func(s *fixture) { s.releaseToLine(first); s.tell(store.KindOffered, listener) }},
			{"a claim of the first in line comes too early", func(s *fixture) { s.refused(offered(second, listener)) }},
		}},
		{"offered", "a key that nobody holds and two wait for", func(s *fixture) { awaited(s); s.releaseToLine(first) }, []step{
			{"the first in line takes the key", func(s *fixture) { s.takes(offered(second, listener)) }},
			{"the second in line does not get the key", func(s *fixture) { s.refused(offered(second, poller)) }},
			{"a claim without a place does not get the key", func(s *fixture) { s.refused(claim(second)) }},
			{"the second takes the key, and passes the first, who does not come", func(s *fixture) {
				c := offered(second, poller)
				c.Unseen = s.freed()
				s.takes(c)
			}},
			{"both leave, and the document goes", func(s *fixture) { s.leave(listener); s.leave(poller) }},
		}},
		{"stale", "a key that nobody holds, and the one that waited for it was not seen for two minutes", func(s *fixture) {
			holding(s)
			s.refused(waiting(second, listener))
			s.releaseToLine(first)
			s.set("waits."+string(listener)+".seen", time.Now().Add(-2*time.Minute))
		}, []step{
			{"a claim without a place takes the key", func(s *fixture) { s.takes(claim(second)) }},
			{"one that comes meanwhile after all is not passed", func(s *fixture) {
				s.beforeSwap = func() { s.takes(standing("THIRD", listener)) }
				s.refused(claim(second))
			}},
		}},
		{"over", "a key whose holder ran out two minutes ago", func(s *fixture) { holding(s); s.runOut(first) }, []step{
			{"a claim takes the key over", func(s *fixture) { s.takes(claim(second)) }},
			{"a claim that takes the key to be held joins the line, and sees that the holder is over", func(s *fixture) { s.takes(known(waiting(second, listener))) }},
			{"a process that was not granted the lease cannot hand it over", func(s *fixture) { s.store = s.another(); s.handsOver(first, second, store.ErrGone) }},
			{"a holder that renews meanwhile is not removed", func(s *fixture) {
				s.beforeSwap = func() { s.renew(first, nil) } // it does not know how late it is
				s.refused(claim(second))
			}},
			{"a holder that leaves meanwhile makes the claim miss", func(s *fixture) {
				s.beforeSwap = func() { s.release(first, nil) }
				s.refused(claim(second))
			}},
			{"a process that cannot tell whether it may trust its lease does not renew it", func(s *fixture) { s.store = s.another(); s.renew(first, store.ErrGone) }},
			{"a renewal after the takeover finds nothing", func(s *fixture) { s.takes(claim(second)); s.renew(first, store.ErrGone) }},
		}},
		{"shared", "a key with two readers", readers, []step{
			{"a claim that would have it alone is refused", func(s *fixture) { s.refused(claim("THIRD")) }},
			{"a claim that would have it alone waits", func(s *fixture) { s.refused(waiting("THIRD", listener)) }},
			{"a third reader joins", func(s *fixture) { s.takes(reader("THIRD")) }},
			{"a reader that knows of others looks first", func(s *fixture) { s.takes(known(reader("THIRD"))) }},
			{"a reader that joins beside another one reads again", func(s *fixture) {
				s.beforeSwap = func() { s.takes(reader("FOURTH")) }
				s.takes(reader("THIRD"))
			}},
			{"a claim of a permit does not go with readers", func(s *fixture) { s.mismatches(permit("THIRD", 3, 1)) }},
			{"one reader renews", func(s *fixture) { s.renew(first, nil) }},
			{"one reader leaves", func(s *fixture) { s.givesBack(reader(first)) }},
			{"both readers leave, and the document goes", func(s *fixture) { s.givesBack(reader(first)); s.givesBack(reader(second)) }},
			{"one reader keeps the key for twenty seconds more", func(s *fixture) { s.keeps(reader(first)) }},
			{"a reader whose reply was lost is cleaned up", func(s *fixture) { s.undo(reader(first)) }},
			{"an operator removes one reader", func(s *fixture) { s.ok(s.store.Break(s.ctx, reader(first).Ref, "it hangs", true)) }},
		}},
		{"shared-over", "a key with two readers that ran out two minutes ago", func(s *fixture) { readers(s); s.runOut(first); s.runOut(second) }, []step{
			{"a claim takes the key over from both", func(s *fixture) { s.takes(claim("THIRD")) }},
			{"a reader takes the key over from both", func(s *fixture) { s.takes(reader("THIRD")) }},
			{"a reader that renews meanwhile is not removed", func(s *fixture) {
				s.beforeSwap = func() { s.renew(first, nil) }
				s.takes(reader("THIRD"))
			}},
		}},
		{"shared-awaited", "a key with two readers, and one who would have it alone waits", func(s *fixture) {
			readers(s)
			s.refused(waiting("THIRD", listener))
		}, []step{
			{"a reader is kept out", func(s *fixture) { s.refused(reader("FOURTH")) }},
			{"a reader is kept out, and joins the line", func(s *fixture) { s.refused(inPlace(reader("FOURTH"), reading)) }},
			{"the last reader leaves, and tells the first in line", func(s *fixture) {
				s.givesBack(reader(first))
				s.givesBack(reader(second))
				s.tell(store.KindOffered, listener)
			}},
		}},
		{"shared-offered", "a key that nobody holds and two readers wait for", func(s *fixture) {
			holding(s)
			s.refused(inPlace(reader("THIRD"), reading))
			s.refused(inPlace(reader("FOURTH"), reading2))
			s.releaseToLine(first)
		}, []step{
			{"both take the key, the second in line first", func(s *fixture) {
				s.takes(toOffer(inPlace(reader(second), reading2)))
				s.takes(toOffer(inPlace(reader("FIFTH"), reading)))
			}},
			{"a late copy of a reader's claim finds its place gone", func(s *fixture) {
				s.takes(toOffer(inPlace(reader(second), reading2)))
				late := s.last()
				s.givesBack(reader(second))
				s.again(late)
			}},
		}},
		{"permits", "a key with three permits, of which two are taken", permits, []step{
			{"a claim takes the third", func(s *fixture) { s.takes(permit("THIRD", 3, 1)) }},
			{"a claim of one of two permits is refused", func(s *fixture) { s.refused(permit("THIRD", 2, 1)) }},
			{"a claim of two of three is refused, and joins the line", func(s *fixture) { s.refused(inPlace(permit("THIRD", 3, 2), heavy)) }},
			{"a claim of two of four is granted", func(s *fixture) { s.takes(permit("THIRD", 4, 2)) }},
			{"a permit is given back", func(s *fixture) { s.givesBack(permit(first, 3, 1)) }},
			{"both are given back, and the document goes", func(s *fixture) { s.givesBack(permit(first, 3, 1)); s.givesBack(permit(second, 3, 1)) }},
		}},
		{"permits-over", "a key with two permits, of whose holders one ran out two minutes ago", func(s *fixture) {
			permits(s)
			s.set("holders."+first+".expireAt", time.Now().Add(-2*time.Minute))
		}, []step{
			{"a claim takes the permit of the one that ran out", func(s *fixture) { s.takes(permit("THIRD", 2, 1)) }},
			{"one that renews meanwhile keeps its permit", func(s *fixture) {
				s.beforeSwap = func() { s.renew(first, nil) }
				s.refused(permit("THIRD", 2, 1))
			}},
		}},
		{"newer", "a document of a newer shape", func(s *fixture) { holding(s); s.set("mongolock", 2) }, foreignSteps()},
		{"foreign", "a document of another program, in the same collection", func(s *fixture) {
			_, err := s.raw.InsertOne(s.ctx, bson.D{{Key: "_id", Value: key}, {Key: "holders", Value: bson.D{{Key: first, Value: 1}}}})
			s.ok(err)
		}, foreignSteps()},
	}
}

func foreignSteps() []step {
	return []step{
		{"a claim is refused", func(s *fixture) { s.foreign(claim(second)) }},
		{"a claim that would wait is refused", func(s *fixture) { s.foreign(waiting(second, listener)) }},
		{"a renewal is refused", func(s *fixture) { s.renew(first, store.ErrForeign) }},
		{"a release is refused", func(s *fixture) { s.release(first, store.ErrForeign) }},
	}
}

func holding(s *fixture) { s.acquire(claim(first)) }

func awaited(s *fixture) {
	holding(s)
	s.refused(waiting("THIRD", listener))
	s.refused(waiting("FOURTH", poller))
}

func readers(s *fixture) {
	s.acquire(reader(first))
	s.acquire(reader(second))
}

func permits(s *fixture) {
	s.acquire(permit(first, 3, 1))
	s.acquire(permit(second, 3, 1))
}

func ref(id string) store.Ref { return store.Ref{Key: key, ID: id, Mode: store.Exclusive} }

func claim(id string) store.Claim {
	return store.Claim{Ref: ref(id), Limit: 1, TTL: ttl, Owner: "host-1"}
}

func reader(id string) store.Claim {
	c := claim(id)
	c.Mode, c.Limit = store.Shared, 0
	return c
}

// permit is a claim of weight permits, where there are so many.
func permit(id string, of, weight int) store.Claim {
	c := claim(id)
	c.Mode, c.Limit, c.Weight = store.Permits, of, weight
	return c
}

// known is a claim of a process that takes the key to be held.
func known(c store.Claim) store.Claim {
	c.Held = true
	return c
}

// waiting is a claim that stands in line if it is refused; standing is its next, once it stands
// there; and offered its next when it was told that the key is its.
func waiting(id string, p store.Place) store.Claim { return inPlace(claim(id), p) }

func standing(id string, p store.Place) store.Claim {
	c := waiting(id, p)
	c.InLine = true
	return c
}

func offered(id string, p store.Place) store.Claim { return toOffer(waiting(id, p)) }

// inPlace is a claim of any mode that waits, and toOffer one that was told that the key is its.
func inPlace(c store.Claim, p store.Place) store.Claim {
	c.Place = p
	return c
}

func toOffer(c store.Claim) store.Claim {
	c.InLine, c.Offered = true, true
	return c
}
