package store

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"
)

// Mode says how a key may be shared among its holders.
type Mode string

// The modes. A key has one at a time: that of its live holders. An Exclusive claim waits for
// holders of every mode, and claims of every mode wait for an exclusive holder. Shared and
// Permits exclude each other.
const (
	Exclusive Mode = "exclusive" // one holder
	Shared    Mode = "shared"    // any number of readers
	Permits   Mode = "permits"   // holders of permits; how many there are is up to each claim
)

// A Ref names one acquisition of one key.
type Ref struct {
	Key  string
	ID   string
	Mode Mode
}

// Format shows the key and the mode, under every verb of package fmt, and never the ID: a
// process that knows the ID can end the lease.
func (r Ref) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "{%q %s}", r.Key, r.Mode) }

// LogValue shows the same in a log.
func (r Ref) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(r)) }

// A Claim asks for a key.
type Claim struct {
	Ref
	Limit  int           // of permits: how many may be taken, with its own, when it is granted; not used in other modes
	Weight int           // how many permits it takes, at most Limit; 0 stands for 1
	TTL    time.Duration // how long the grant lasts unless renewed
	Owner  string        // the claimant, for people to read
	Note   string        // the purpose, for people to read

	// Place is the claimant's place in the line of the key. A claim that is refused because
	// others hold the key, or come before it, joins the line at its end, or keeps its place; and
	// it was seen now. A grant takes the place out of the line. A claim without a place leaves
	// nothing behind. If the line is full the claim does not join.
	Place Place

	// Unseen, if it is not zero, passes all places before Place that could have had the key since
	// then, and whose waiters were not seen after it, by the store's clock: they did not take it. The
	// claim comes before them, and a grant takes them out of the line too.
	Unseen time.Time

	// Since, if it is not zero, is when Place joined the line. If it is not there any more it was
	// passed: it joins before those that came later, with that date, and is shown as Slow.
	Since time.Time

	// Slow says that another place of the claimant was passed lately: this one is shown as Slow, too.
	Slow bool

	// Yields is the address at which the claimant hears of those who wait for the key that it
	// holds, by notices of KindWanted. Its holder is shown with it.
	Yields string

	// These are hints: the answer is the same without them. Offered: the key was freed, and it is
	// the turn of Place. InLine: Place was seen in line. Held: others are known to hold the key, or
	// to wait for it. Full: the line had no room for Place.
	Offered, InLine, Held, Full bool
}

// A Grant is the answer to a claim that was given the key.
type Grant struct {
	Token int64         // greater than that of every earlier exclusive grant of the key
	Left  time.Duration // the grant is honoured for this long, counted from the start of the call
	Since time.Time     // when it was granted, by the store's clock
	Line  []Place       // who waits, in order
}

// A Renewal asks to restart a holder's TTL.
type Renewal struct {
	Ref
	TTL time.Duration
}

// Renewed answers one Renewal: either Left, counted from the start of the call, or
// the reason of a refusal.
type Renewed struct {
	Left time.Duration
	Line []Place // who waits; of several renewals in one call the store need not know it
	Err  error
}

// A Holder is one acquisition in a key's record, live or expired.
type Holder struct {
	ID       string    `json:"id"`
	Owner    string    `json:"owner"`
	Note     string    `json:"note,omitempty"`
	Since    time.Time `json:"since"`
	ExpireAt time.Time `json:"expireAt"`
	Broken   string    `json:"broken,omitempty"`   // why an operator broke it, or empty
	Released bool      `json:"released,omitempty"` // its lease was released; MinHold keeps the key until ExpireAt
	Yields   string    `json:"yields,omitempty"`   // if not empty, the holder wants to know at this address of those who wait
	Weight   int       `json:"weight,omitempty"`   // how many permits it has; 0 stands for 1

	// KnownBy is the latest time, by the clock of the Status, at which the store will know that
	// the holder is over, if it does not renew. Zero means ExpireAt. A store whose clock may
	// have been replaced since the holder was written, as by the election of another primary,
	// does not trust ExpireAt alone.
	KnownBy time.Time `json:"knownBy,omitzero"`
}

// end returns when a holder that does not renew stops counting.
func (h Holder) end() time.Time {
	if h.KnownBy.IsZero() {
		return h.ExpireAt
	}
	return h.KnownBy
}

// Format shows the holder under every verb of package fmt, without its ID: see Ref.
func (h Holder) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "{owner %q, note %q, since %s, until %s", h.Owner, h.Note, h.Since.Format(time.RFC3339Nano), h.ExpireAt.Format(time.RFC3339Nano))
	if h.Weight > 1 {
		_, _ = fmt.Fprintf(f, ", weight %d", h.Weight)
	}
	if h.Broken != "" {
		_, _ = fmt.Fprintf(f, ", broken: %q", h.Broken)
	}
	if h.Released {
		_, _ = fmt.Fprint(f, ", released")
	}
	_, _ = fmt.Fprint(f, "}")
}

// LogValue shows the holder in a log, without its ID.
func (h Holder) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(h)) }

// A Status is a key as the store saw it at Now, by its own clock.
type Status struct {
	Key     string
	Mode    Mode     // the holders' mode; empty if the key has no holders
	Holders []Holder // expired ones included; ordered by Since, then ID
	Line    []Waiter // those who wait, in their order, stale ones included
	Now     time.Time

	// Freed is when a holder last left while the record stayed, and Used how long it had the key, as
	// it said. Zero if that is not known.
	Freed time.Time
	Used  time.Duration
}

// LogValue shows the status in a log, without the holders' IDs.
func (s Status) LogValue() slog.Value {
	holders := make([]string, len(s.Holders))
	for i, h := range s.Holders {
		holders[i] = fmt.Sprint(h)
	}
	return slog.GroupValue(slog.String("key", s.Key), slog.String("mode", string(s.Mode)), slog.Any("holders", holders),
		slog.Int("waiting", len(s.Line)), slog.Time("now", s.Now))
}

// Live reports whether h holds the key at the moment of the Status, as far as the store
// knows.
func (s Status) Live(h Holder) bool { return h.end().After(s.Now) }

// Confirming reports whether h has run out by its own end, but the store cannot yet be sure of
// it. It will be sure by h.KnownBy. Until then h counts as live.
func (s Status) Confirming(h Holder) bool { return s.Live(h) && !h.ExpireAt.After(s.Now) }

// Free reports whether the key has no live holder.
func (s Status) Free() bool { return s.Left() == 0 }

// Taken returns how many permits the live holders have taken. In other modes it counts the holders.
func (s Status) Taken() (n int) {
	for _, h := range s.Holders {
		if s.Live(h) {
			n += max(1, h.Weight)
		}
	}
	return n
}

// Left returns the time until the last holder is over, if no holder renews.
func (s Status) Left() time.Duration {
	var left time.Duration
	for _, h := range s.Holders {
		left = max(left, s.LeftOf(h))
	}
	return left
}

// LeftOf returns the time until h is over if it does not renew, or zero if it is over.
func (s Status) LeftOf(h Holder) time.Duration { return max(0, h.end().Sub(s.Now)) }

// A ReleaseRequest asks to release a holder. If Keep is positive, the key stays taken until Keep after
// the holder's Since, which may be sooner or later than its expiry was; from then on the holder
// is shown as Released, and cannot be renewed or transferred.
type ReleaseRequest struct {
	Ref
	Keep time.Duration
	Line bool          // a hint: waiters are known to be in line
	Used time.Duration // how long the claimant had the key, for those who wait; 0: not known
}

// A ReleaseResult answers a ReleaseRequest.
type ReleaseResult struct {
	Line        []Place // who waits, in order, without places that are stale
	HoldersLeft int     // how many permits, or holders in other modes, are left that have not run out, by their dates
}

// A Store keeps the holders of keys. The package comment numbers its duties.
type Store interface {
	// Acquire claims a key. It returns a Grant, a *HeldError, a *MismatchError, or
	// another error as duty 8 says.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Renew restarts the TTL of each holder of the batch and answers in the same order. The
	// answer is BrokenError for a holder that was broken, expired or not. It is ErrGone for any
	// other that is absent, released or expired.
	Renew(ctx context.Context, batch []Renewal) []Renewed

	// Release removes a holder. It is ErrGone if the record has no holder with that ID. An expired
	// holder that is still there is removed too.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseResult, error)

	// Leave takes a place out of the line of a key. It returns the key as it is then; it is no error
	// if the place is not there.
	Leave(ctx context.Context, key string, p Place) (Status, error)

	// Transfer puts a new claim in the place of a live exclusive holder, in one
	// step. It answers ErrGone and BrokenError for from as Renew does. The grant has a
	// new token.
	Transfer(ctx context.Context, from Ref, to Claim) (Grant, error)

	// Undo cleans up after a claim of unknown outcome. With from nil the claim was an Acquire,
	// or a Transfer whose from must stay as it is; otherwise it was a Transfer out of from, and
	// both are removed. If settled is true, none of them holds the key any more or ever will.
	// Otherwise the claim may still be applied, and Undo has to be repeated.
	Undo(ctx context.Context, claim Ref, from *Ref) (settled bool, err error)

	// Break marks a holder, so that its next renewal answers BrokenError with the reason. If
	// now is true it also removes the holder. It answers ErrGone if the record has no holder
	// with that ID.
	Break(ctx context.Context, r Ref, reason string, now bool) error

	// Look reads keys without changing them. It returns one Status per key, in order; a key
	// without a record has no holders. If records among them are foreign, the error matches
	// ErrForeign, and the other keys are answered all the same.
	Look(ctx context.Context, keys []string) ([]Status, error)

	// List yields the keys that begin with prefix, in order, including keys whose
	// holders have all expired. Foreign records are left out. An error ends it.
	List(ctx context.Context, prefix string) iter.Seq2[Status, error]
}

// A Notice is a hint that a key may be worth a look. A notice that is lost, late or
// doubled costs time, never safety. Unknown topics and kinds are ignored; an empty
// Notice means: look at everything.
type Notice struct {
	Topic string // the package whose keys are meant
	Key   string
	Kind  string // what happened
	To    string // the address of the process that is told; empty: all who watch the topic
	Place Place  // that is meant, if one is
}

// The notices that the lock engine sends and heeds. All have an address.
const (
	TopicLocks  = "locks"
	KindOffered = "offered" // it is the turn of Place
	KindNext    = "next"    // the key is offered, and Place comes after those to whom it is
	KindMoved   = "moved"   // the time has changed when it will be the turn of Place
	KindWanted  = "wanted"  // a process waits for a key whose holder Yields
)

// An Audience says which notices a watcher gets: those to its address, and those of its topics
// that have no address. It also gets the empty notices. The zero Audience gets all.
type Audience struct {
	Address string
	Topics  []string
}

// A Feed carries notices between processes. It is optional.
type Feed interface {
	// Notify sends notices to every watcher for whom they are. A watcher may get an empty notice
	// in the place of any of them, and may get notices for others.
	Notify(ctx context.Context, all ...Notice) error

	// Watch yields the notices for an audience until its context ends or the caller stops. An
	// error ends it; the caller may watch again.
	Watch(ctx context.Context, of Audience) iter.Seq2[Notice, error]
}

// A FeedState says whether a client hears of keys that other processes free.
type FeedState string

// The states of a feed.
const (
	FeedNone    FeedState = "none"    // the store has none, or it is not used: waiters poll
	FeedIdle    FeedState = "idle"    // there is no waiter, so it is not open
	FeedOpening FeedState = "opening" // it is being opened, for the first time or again: waiters poll meanwhile
	FeedLive    FeedState = "live"    // it is open
)

// FeedOf returns the Feed of a store, or of the store that it wraps (by a method
// Unwrap() Store). It returns nil if neither has one.
func FeedOf(s Store) Feed {
	if feed, is := s.(Feed); is {
		return feed
	}
	if w, wraps := s.(interface{ Unwrap() Store }); wraps {
		return FeedOf(w.Unwrap())
	}
	return nil
}
