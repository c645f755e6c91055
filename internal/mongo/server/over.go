package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/swept"
)

// A HolderState is what must be known of a holder to judge whether it is over.
type HolderState struct {
	ID       string
	Beat     int64         // greater with every write for this holder
	Epoch    bson.ObjectID // the election under which it was written, as its writer knew it
	TTL      time.Duration
	ExpireAt time.Time // by the clock of the primary that applied the write, or later
}

// LongPast is how long a holder must have run out by any primary's clock to be over, whatever
// the election (rule 3). It assumes that the clocks of a set's members differ by less than
// this.
const LongPast = time.Minute

// Judge reports which holders of a document are over, by their IDs. The document was
// looked at by a command that was sent at and answered at seen. A holder is over
//
//  1. if a hello sent after the look tells the epoch that it was written under, and a time
//     past its end: an older hello's clock may have been stepped back before the holder was
//     written; or
//  2. if its beat has been the same for its whole TTL, by the clock of this process; or
//  3. if it has been past its end for more than a minute by any primary's clock.
//
// Where each shard has a clock of its own, rule 2 alone counts.
//
// The command that drops a holder must name the beat that was seen: a renewal in between
// then makes it miss. docs/internals/design.md §4.3 has the argument.
func (s *Server) Judge(ctx context.Context, key string, holders []HolderState, sent, seen Moment) (over map[string]bool, err error) {
	s.sights.saw(key, holders, seen)
	now := s.Now()
	over = make(map[string]bool, len(holders))
	ask := false
	for _, h := range holders {
		switch still := s.sights.still(key, h, now.At); {
		case still >= Still(h.TTL), h.LongPast(now.Earliest) && !s.ManyClocks():
			over[h.ID] = true
		case !h.ExpireAt.After(now.Latest):
			ask = true
		}
	}
	if !ask || s.Kind().Router {
		return over, nil
	}
	told, err := s.ask(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range holders {
		if told.past(h) || h.LongPast(told.server) {
			over[h.ID] = true
		}
	}
	return over, nil
}

// LongPast reports whether a holder is over by rule 3 at that time.
func (h HolderState) LongPast(now time.Time) bool { return !h.ExpireAt.Add(LongPast).After(now) }

func (a answer) past(h HolderState) bool {
	return a.sure && h.Epoch == a.epoch && !h.ExpireAt.After(a.server)
}

// KnownBy returns the moment, by the server's clock as now shows it, at which it will be known
// that a holder which does not renew is over. It is zero if that is the holder's own end.
func (s *Server) KnownBy(key string, h HolderState, now time.Time) time.Time {
	by := s.ClockBasis()
	wait := Still(h.TTL) - s.sights.still(key, h, by.At) // negative: it is known since then
	known := Ceil(now.Add(wait))
	end := h.ExpireAt
	switch {
	case s.ManyClocks():
		return known
	case !by.Sure || h.Epoch != by.Epoch || s.Kind().Router:
		end = end.Add(LongPast)
	case !known.Before(end):
		return time.Time{}
	}
	if end.Before(known) {
		return end
	}
	return known
}

// Saw remembers what a look at a key showed, so that later looks can tell how long its holders
// have been silent.
func (s *Server) Saw(key string, holders []HolderState, at Moment) { s.sights.saw(key, holders, at) }

// Last returns the holders that the last look at a key showed, by their IDs, and when that was.
func (s *Server) Last(key string) (holders []HolderState, looked Moment) {
	s.sights.mu.Lock()
	defer s.sights.mu.Unlock()
	last := s.sights.keys.All[key]
	for _, id := range slices.Sorted(maps.Keys(last.holders)) {
		holders = append(holders, last.holders[id].HolderState)
	}
	return holders, last.looked
}

// Beat returns a number for a holder's beat, greater than every earlier one of this process.
// The wall clock decides nothing here. It only makes a process that renews another one's grant
// begin with a greater number.
func (s *Server) Beat() int64 { return beats.Add(1) }

// beats has the last number that Server.Beat returned.
var beats atomic.Int64

func init() { beats.Store(time.Now().UnixNano()) }

// sights remembers since when the holders of a key have shown the same beats. The zero value is
// ready for use.
type sights struct {
	mu   sync.Mutex // protects keys; never held across a command
	keys swept.Map[string, sight]
}

type sight struct {
	looked  Moment
	holders map[string]silent // by ID
}

type silent struct {
	HolderState
	since Moment
}

const (
	sightsKept = time.Hour // after the last look at a key
	sightsMost = 1 << 16
)

func (s *sights) saw(key string, holders []HolderState, at Moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.keys.All[key]
	if len(holders) == 0 {
		delete(s.keys.All, key)
		return
	}
	now := sight{at, make(map[string]silent, len(holders))}
	for _, h := range holders {
		now.holders[h.ID] = silent{h, min(before.since(h, at), at)}
	}
	old := func(_ string, seen sight) bool { return at.Sub(seen.looked) > sightsKept }
	s.keys.Put(key, now, old)
	if len(s.keys.All) <= sightsMost {
		return
	}
	maps.DeleteFunc(s.keys.All, old)
	for key := range s.keys.All { // there are too many: a quarter is dropped, and begins again
		if len(s.keys.All) <= sightsMost/4*3 {
			break
		}
		delete(s.keys.All, key)
	}
}

func (s *sights) still(key string, h HolderState, now Moment) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, now.Sub(s.keys.All[key].since(h, now)))
}

// since returns when a holder was first seen with its present beat: now, if it was not.
func (s sight) since(h HolderState, now Moment) Moment {
	if old, seen := s.holders[h.ID]; seen && old.Beat == h.Beat {
		return old.since
	}
	return now
}
