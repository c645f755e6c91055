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

	// Two places in line: of a process that hears notices, and of one that polls.
	listener store.Place = "x:ADDRESS:LISTENER"
	poller   store.Place = "x::POLLER"
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
			{"the clean-up of a claim that never arrived finds nothing", func(s *fixture) { s.undo(first) }},
			{"the first grant makes the TTL index", func(s *fixture) { s.ok(s.store.EnsureIndex(s.ctx)) }},
		}},
		{"held", "a key that is held, and that nobody waits for", holding, []step{
			{"a claim that does not wait is refused, and reads by whom", func(s *fixture) { s.refused(claim(second)) }},
			{"a claim that waits is refused, and joins the line", func(s *fixture) { s.refused(waiting(second, listener)) }},
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
			{"a claim whose reply was lost is cleaned up", func(s *fixture) { s.undo(first) }},
			{"an operator breaks the lock", func(s *fixture) { s.ok(s.store.Break(s.ctx, ref(first), "it hangs", false)) }},
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
		}},
		{"awaited", "a key that is held, and two wait for it", awaited, []step{
			{"the first in line still waits", func(s *fixture) { s.refused(standing(second, listener)) }},
			{"the second leaves the line", func(s *fixture) { s.leave(poller, false) }},
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
				c.Pass = listener
				s.takes(c)
			}},
			{"a process behind both removes the first, who does not come", func(s *fixture) { s.leave(listener, true) }},
			{"both leave, and the document goes", func(s *fixture) { s.leave(listener, false); s.leave(poller, false) }},
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
		}},
		{"shared-over", "a key with two readers that ran out two minutes ago", func(s *fixture) { readers(s); s.runOut(first); s.runOut(second) }, []step{
			{"a claim takes the key over from both", func(s *fixture) { s.takes(claim("THIRD")) }},
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
	for _, id := range []string{first, second} {
		c := claim(id)
		c.Mode, c.Limit = store.Shared, 0
		s.acquire(c)
	}
}

func ref(id string) store.Ref { return store.Ref{Key: key, ID: id, Mode: store.Exclusive} }

func claim(id string) store.Claim {
	return store.Claim{Ref: ref(id), Limit: 1, TTL: ttl, Owner: "host-1"}
}

// waiting is a claim that stands in line if it is refused; standing is its next, once it stands
// there; and offered its next when it was told that the key is its.
func waiting(id string, p store.Place) store.Claim {
	c := claim(id)
	c.Place = p
	return c
}

func standing(id string, p store.Place) store.Claim {
	c := waiting(id, p)
	c.InLine = true
	return c
}

func offered(id string, p store.Place) store.Claim {
	c := standing(id, p)
	c.Offered = true
	return c
}
