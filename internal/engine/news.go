package engine

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/store"
)

// A feed is what is known of the store's feed, and when keys are read while it is not live.
type feed struct {
	poll     poll
	recheck  recheck
	interval time.Duration
	reads    int  // of a poll, that are not answered yet
	often    bool // one of them showed a key that is worth a poll soon
	askedFor [64]uint32

	needed     int    // keys and holds that need it
	live       bool   // notices are heard
	deaf       bool   // there is none, or it is not listened to
	old        bool   // it is reopened only because it is old: one look is enough, when it is open
	quietUntil moment // nothing is announced until then, because the store refused to
}

// A poll is the alarm of the next one.
type poll struct{ alarm }

// A recheck is the alarm of a read that sees what was announced before it was done.
type recheck struct{ alarm }

// A look says what a read is for.
type look int

const (
	toSee   look = iota // what is waited for, once
	toPoll              // that, until the feed is live
	toAgain             // that, because anything may have changed
	toTell              // those whose turn it is
	toCheck             // whether somebody came for a key that was freed
)

// Keys are polled at these intervals: often at first, and while they change hands.
const (
	pollLeast = 50 * time.Millisecond
	pollMost  = time.Second
)

const (
	batchSize     = 1000        // entries in one call
	announceAgain = time.Minute // after which announcements are tried again that the store refused
)

// address returns where this process hears notices; empty if it hears none.
func (c *core) address() string {
	if c.deaf {
		return ""
	}
	return c.config.Address
}

// listen says that so many more need the feed.
func (c *core) listen(n int) {
	c.needed += n
	c.ready.Listen += n
}

// watch makes sure that a head which was refused learns when it is its turn, until its queue is empty.
func (c *core) watch(q *key) {
	first := !q.watched
	if first {
		q.watched = true
		c.listen(1)
	}
	c.pollSoon(first)
}

// pollSoon begins to poll, unless the feed is live. first says that somebody new needs it.
func (c *core) pollSoon(first bool) {
	if c.live || c.draining {
		return
	}
	if first || c.interval == 0 {
		c.interval = pollLeast
	}
	if c.poll.at == 0 && c.reads == 0 {
		c.set(&c.poll.alarm, c.now.Add(backoff.Jitter(c.interval)))
	}
}

// ring polls: one read for all keys that are waited for. If it fails, the heads still ask when their plans
// say so.
func (p *poll) ring(c *core) {
	if c.live || c.draining {
		return
	}
	c.often = false
	if c.readAll(c.toRead(false), toPoll); c.reads == 0 {
		c.polled()
	}
}

// polled plans the next poll.
func (c *core) polled() {
	if c.live || c.waiting == 0 {
		return
	}
	c.interval = min(2*c.interval, pollMost)
	if c.often {
		c.interval = pollLeast
	}
	c.pollSoon(false)
}

// toRead returns the keys whose heads were refused and are not asking, in order, so that a simulation can be
// repeated. With again, a head that is asking asks once more, and keys are among them that somebody may wait
// for without having told their holder here.
func (c *core) toRead(again bool) (names []string) {
	for name, q := range c.keys.All {
		switch {
		case q.head == nil:
			if again && q.holder != nil && q.holder.Terms.Yields {
				names = append(names, name)
			}
		case q.claim != nil && again:
			q.view.look = true
		case q.holder == nil && q.view.Seen != nil && q.claim == nil:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// readAll reads keys, many in one read, because thousands of heads that asked at once would overload the store.
func (c *core) readAll(names []string, then look) {
	for batch := range slices.Chunk(names, batchSize) {
		if then == toPoll {
			c.reads++
		}
		c.call(&Call{Kind: Look, Keys: batch, then: then}, c.now.Add(releaseBound))
	}
}

// read reads one key.
func (c *core) read(name string) { c.readAll([]string{name}, toSee) }

// looked takes in what a read showed.
func (c *core) looked(call *Call) {
	seen, err := call.Seen, call.Err
	switch call.then {
	case toSee:
		c.sawAll(seen)
	case toAgain:
		if err != nil {
			c.askFor(call.Keys)
		}
		c.sawAll(seen)
	case toPoll:
		c.often = c.sawAll(seen) || c.often
		if errors.Is(err, store.ErrDisconnected) { // for good: they are told so
			c.askFor(c.toRead(true))
		}
		if c.reads--; c.reads == 0 {
			c.polled()
		}
	case toTell: // if it failed, they find out by themselves
		if len(seen) > 0 {
			c.tellOf(&seen[0])
		}
	case toCheck:
		if len(seen) > 0 {
			c.checked(&seen[0], call.Place)
		}
	}
}

// sawAll handles what a read showed, and reports whether a key has changed since it was last seen.
func (c *core) sawAll(all []store.Status) (changed bool) {
	for i := range all {
		changed = c.saw(&all[i]) || changed
	}
	return changed
}

func (c *core) saw(s *store.Status) (changed bool) {
	q := c.keys.All[s.Key]
	if q == nil {
		return false
	}
	h := q.holder
	if h != nil && h.Terms.Yields && h.isAmong(s.Holders) && len(s.Waiting("")) > 0 {
		h.heardWaiter() // a read from before its grant may show the place that it waited at
	}
	switch {
	case q.head == nil || q.claim != nil:
		return false
	case h != nil:
		if !h.isAmong(s.Holders) && h.seldomRenewed() {
			c.renewNow(h, nil) // only a renewal says for certain that it is gone, and so ends it
		}
		return false
	}
	last := q.view.Seen
	q.view.Read(s, c.now)
	c.poke(q)
	return last == nil || changedHands(last, s)
}

// askFor makes the heads of keys ask.
func (c *core) askFor(names []string) {
	for _, name := range names {
		if q := c.keys.All[name]; q != nil {
			c.look(q)
		}
	}
}

// all returns the names of all keys, in order, so that a simulation can be repeated.
func (c *core) all() []string { return slices.Sorted(maps.Keys(c.keys.All)) }

// slept takes in that the machine was suspended: wake-ups may have been missed.
func (c *core) slept() { c.askFor(c.all()) }

// asks counts how often others asked for a key, several keys in one counter. A notice may come before the reply to
// the claim whose holder it asks.
func (c *core) asks(name string) *uint32 {
	hash := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		hash = (hash ^ uint32(name[i])) * 16777619
	}
	return &c.askedFor[hash%uint32(len(c.askedFor))]
}

// heard handles a notice.
func (c *core) heard(n store.Notice) {
	if n.Topic != store.TopicLocks {
		return
	}
	switch n.Kind {
	case store.KindOffered:
		c.offered(n.Key, n.Place)
	case store.KindNext: // a place of this client comes after those to whom the key is offered
		if q := c.keys.All[n.Key]; q != nil && q.head != nil && n.Place == q.view.Place {
			q.view.HeardNext(c.now)
			c.poke(q)
		}
	case store.KindMoved:
		c.askFor([]string{n.Key})
	case store.KindWanted:
		*c.asks(n.Key)++
		if q := c.keys.All[n.Key]; q != nil && q.holder != nil {
			q.holder.heardWaiter()
		}
	}
}

// offered takes in that it is the turn of a place of this client; without a place, that of its head.
func (c *core) offered(name string, p store.Place) {
	switch q := c.of(name); {
	case q.head != nil && (p == "" || p == q.view.Place):
		q.view.HeardOffer(c.now)
		c.poke(q)
	case p == "":
		q.offeredAt = c.now
	case p != q.served: // nobody waits with it any more
		c.unusedOffer(name, p)
	}
}

// feedLive takes in that the feed is open: earlier releases and waiters were missed.
func (c *core) feedLive() {
	old := c.old
	c.live, c.old = true, false
	if !old {
		c.lookAgain()
	}
	c.set(&c.recheck.alarm, c.now.Add(earlyNoticeValid)) // the holders seen now may have announced their release already
}

func (r *recheck) ring(c *core) { c.lookAgain() }

// lookAgain reads all keys that are waited for, because anything may have changed.
func (c *core) lookAgain() { c.readAll(c.toRead(true), toAgain) }

// feedLost makes the waiters poll until the feed is back.
func (c *core) feedLost(e Event) {
	c.live, c.deaf, c.old = false, c.deaf || e.Final, e.Err == nil
	if c.waiting > 0 {
		c.pollSoon(true)
	}
	switch {
	case e.Final:
		c.say(slog.LevelInfo, "mongolock: the store has no wake-ups: waiters poll", "error", e.Err)
	case e.News:
		c.say(slog.LevelWarn, "mongolock: wake-ups are interrupted: waiters poll meanwhile", "error", e.Err)
	}
}

// announces reports whether other processes are told of keys that are freed. They are if this one does not
// listen, too, as others may; but nothing is sent once the client is closed, as by a release that comes then.
func (c *core) announces() bool {
	return c.config.Announces && !c.cut && (c.quietUntil == 0 || c.now >= c.quietUntil)
}

// tell sends notices.
func (c *core) tell(all []store.Notice) {
	if len(all) > 0 && c.announces() {
		c.call(&Call{Kind: Notify, All: all}, c.now.Add(releaseBound))
	}
}

// notified takes in whether notices were sent. A refusal may pass, as one for a quota does.
func (c *core) notified(call *Call) {
	switch err := call.Err; {
	case err == nil:
	case errors.Is(err, errors.ErrUnsupported):
		first := c.quietUntil == 0
		c.quietUntil = c.now.Add(announceAgain)
		if first { // otherwise the log has said so
			c.say(slog.LevelInfo, "mongolock: the store refuses wake-ups; they are tried again every minute", "key", call.All[0].Key, "notices", len(call.All), "error", err)
		}
	default:
		c.say(slog.LevelDebug, "mongolock: a wake-up was not sent; waiters find out by themselves", "key", call.All[0].Key, "notices", len(call.All), "error", err)
	}
}

// freed tells waiters, this client's and those of other processes, that a key may be free. Who waits elsewhere is
// unknown, and read first.
func (c *core) freed(name string) {
	c.askFor([]string{name})
	if c.announces() {
		c.readAll([]string{name}, toTell)
	}
}

// tellOf tells those whose turn it is by a status.
func (c *core) tellOf(s *store.Status) {
	waiting := s.Waiting("")
	n := s.Offered(waiting)
	c.tell(moved(s.Key, waiting, n, min(n, 1)))
	c.expect(s.Key, waiting, n, n+1, -s.OfferedFor(), s.Used)
}

// announceEarly announces a release while the command that frees the key is under way, if others are in line:
// that saves the first of them a round trip. It returns whom it told. A waiter that claims too early retries
// (View.Refused).
func (c *core) announceEarly(h *Hold) (told []store.Notice) {
	waiting := c.whoWaits(h)
	if len(waiting) == 0 || h.Terms.shares() || c.keep(h) > 0 || !c.announces() {
		return nil
	}
	if len(h.line) > 0 {
		told = offers(h.Ref.Key, waiting, store.Status{}.Offered(waiting))
	} else { // they were in line at the last release: by now with other places
		told = notices(store.KindOffered, h.Ref.Key, waiting[:1])
		for i := range told {
			told[i].Place = ""
		}
	}
	c.tell(told)
	return told
}

// whoWaits returns who was last seen in line: by the grant of h, or lately by a release.
func (c *core) whoWaits(h *Hold) []store.Place {
	switch {
	case len(h.line) > 0:
		return h.line
	case h.queue.othersWait(c.now):
		return h.queue.others
	}
	return nil
}

// nowOffered returns the notices after a release: to those whose turn it is, or who look when it will be.
func (c *core) nowOffered(h *Hold, e store.ReleaseResult) []store.Notice {
	if len(e.Line) == 0 {
		return nil
	}
	n, used := store.Status{}.Offered(e.Line), c.now.Sub(h.granted)
	if keep := c.keep(h); keep > 0 {
		c.expect(h.Ref.Key, e.Line, n, n+1, keep-used, used)
		return notices(store.KindMoved, h.Ref.Key, e.Line[:min(n+1, len(e.Line))]) // the first may be dead
	}
	if e.HoldersLeft > 0 { // others release, too, and tell those behind
		n = store.Status{Mode: h.Terms.Mode}.OfferedBeside(e.Line, e.HoldersLeft)
		c.expect(h.Ref.Key, e.Line, n, n, 0, used)
		return notices(store.KindOffered, h.Ref.Key, e.Line[:n])
	}
	c.expect(h.Ref.Key, e.Line, n, n+1, 0, used)
	return offers(h.Ref.Key, e.Line, n)
}

// A check is an alarm at which this client sees whether somebody came for a key that it freed.
type check struct {
	alarm
	key      *key
	expected []store.Place // who waited
	freedAt  moment        // when many waited
	freeAt   moment        // the same, or, under MinHold, when it will be free
}

// expect makes sure that somebody comes for a key that will be offered to n of a line, after a lease that was
// used for so long. Some of the line were told. If they have all died nobody who lives knows that the key is
// free: so this client looks a little before they are passed. It need not if it has the key itself by then, or
// waits and will have it.
func (c *core) expect(name string, waiting []store.Place, n, told int, after, used time.Duration) {
	if n == 0 || len(waiting) <= told || !c.announces() {
		return
	}
	if c.draining {
		c.tell(notices(store.KindNext, name, waiting)) // it will not see
		return
	}
	q := c.of(name)
	q.check.freedAt, q.check.freeAt, q.check.expected = c.now, c.now.Add(max(0, after)), waiting
	c.set(&q.check.alarm, c.now.Add(after+patienceWith(waiting[0], used)*4/5))
}

// ring tells all who are in line of a key that is free since it was offered to those who were told.
func (k *check) ring(c *core) {
	q := k.key
	first := k.expected[0]
	k.expected = nil
	if knows := q.holder != nil || q.head != nil && q.view.Comes(k.freedAt, k.freeAt); !knows {
		c.call(&Call{Kind: Look, Keys: []string{q.name}, Place: first, then: toCheck}, c.now.Add(releaseBound))
	}
}

// checked takes in the key as it is then; if the read failed, they find out by themselves. For how long it is free may be
// by two clocks: the first that was told, and still waits, has not come.
func (c *core) checked(s *store.Status, first store.Place) {
	stays := slices.ContainsFunc(s.Line, func(w store.Waiter) bool { return w.Place == first })
	if waiting := s.Waiting(""); s.Offered(waiting) > 0 && (stays || s.OfferedFor() > patienceWith(waiting[0], s.Used)/2) {
		c.tell(notices(store.KindMoved, s.Key, waiting))
	}
}

// left tells those whose turn it is after a place was taken out of a line.
func (c *core) left(call *Call) {
	c.leftLine(call.debt, call.Err)
	if call.Err != nil {
		return
	}
	s := &call.Seen[0]
	waiting := s.Waiting("")
	n := s.Offered(waiting)
	behind := 0
	switch {
	case n > 0:
		behind = 1
	case s.Mode != store.Exclusive && reserves(call.Place):
		behind = 2 // it waited for more than they do; the first of them may be dead
	case len(waiting) > 0 && endsUntold(s, waiting[0]):
		behind = 1 // it may not know when that is, nor that it is the first
	}
	c.tell(moved(s.Key, waiting, n, behind))
	c.expect(s.Key, waiting, n, n+1, -s.OfferedFor(), s.Used)
	c.saw(s)
}

// offers says whose turn it is, after a change of a key: to those places of the line to whom it is offered, n of
// them, and to the one behind.
func offers(name string, line []store.Place, n int) (all []store.Notice) {
	all = notices(store.KindOffered, name, line[:n])
	if n > 0 && n < len(line) {
		all = append(all, notices(store.KindNext, name, line[n:n+1])...)
	}
	return all
}

// moved returns the notices of a key that is offered to n of a line, but was not released just now. So many behind
// them look at once: they would take KindNext for a release, and count from now.
func moved(name string, waiting []store.Place, n, behind int) []store.Notice {
	told := notices(store.KindOffered, name, waiting[:n])
	return append(told, notices(store.KindMoved, name, waiting[n:min(n+behind, len(waiting))])...)
}

// notices returns one for each place whose process hears any.
func notices(kind, name string, places []store.Place) (all []store.Notice) {
	for _, p := range places {
		if p.Address() != "" {
			all = append(all, store.Notice{Topic: store.TopicLocks, Key: name, Kind: kind, To: p.Address(), Place: p})
		}
	}
	return all
}

// unsent returns those notices that were not sent beside a release. One without a place was meant for whatever
// place its process has in line.
func unsent(all, sent []store.Notice) (rest []store.Notice) {
	for _, n := range all {
		place := n
		place.Place = ""
		if !slices.Contains(sent, n) && !slices.Contains(sent, place) {
			rest = append(rest, n)
		}
	}
	return rest
}

// Wanted returns the notices that tell the holders of a key that somebody waits for it, if they asked to be
// told. The waiter that tells them is in line, and is offered the key.
func Wanted(s *store.Status) (all []store.Notice) {
	for _, h := range s.Holders {
		if h.Yields != "" && s.Live(h) {
			all = append(all, store.Notice{Topic: store.TopicLocks, Key: s.Key, Kind: store.KindWanted, To: h.Yields})
		}
	}
	return all
}
