package store

import (
	"context"
	"iter"
	"time"
)

// Mode says how a key may be shared among its holders.
type Mode string

// The modes. A key has one at a time: that of its live holders. Who asks for
// Exclusive waits for holders of any mode, and they for him; Shared and Permits do
// not go together, nor do Permits of different limits.
const (
	Exclusive Mode = "exclusive" // one holder
	Shared    Mode = "shared"    // any number of readers
	Permits   Mode = "permits"   // up to Limit holders
)

// A Ref names one acquisition of one key.
type Ref struct {
	Key  string
	ID   string
	Mode Mode
}

// A Claim asks for a key.
type Claim struct {
	Ref
	Limit int           // number of permits; 1 for exclusive, 0 for shared
	TTL   time.Duration // how long the grant lasts unless renewed
	Owner string        // who asks, for people
	Note  string        // what for, for people

	// Want, if positive and the key is held, leaves word for so long: whoever
	// removes a holder in that time is told that somebody waits.
	Want time.Duration

	// Held is a hint: the key was seen held, and there is no sign that it was freed
	// since. Where a claim of a held key costs more than a look, look first. The
	// answer is the same.
	Held bool
}

// The least and the most that a writer's word keeps others out for.
const (
	reserveLeast = 5 * time.Second
	reserveMost  = 30 * time.Second
)

// Reserve is for how long the word of an exclusive claim, left where others share
// the key, keeps new shared claims and claims of permits out: as long as a holder with its TTL would outlive a
// crash, but at least 5 s, at most 30 s, and never longer than Want. A waiter that
// died must not keep the key from those who could use it for much longer than a
// holder that died does; one that is alive leaves its word again in time.
func (c Claim) Reserve() time.Duration {
	if c.Mode != Exclusive {
		return 0
	}
	return min(c.Want, max(reserveLeast, min(c.TTL, reserveMost)))
}

// A Grant is the answer to a claim that was given the key.
type Grant struct {
	Token  int64         // greater than that of every earlier exclusive grant of the key
	Left   time.Duration // honoured for so long, counted from the start of the call
	Since  time.Time     // when it was granted, by the store's clock
	Wanted bool          // the record carries the word of somebody who waits
}

// A Renewal asks that a holder's time begin anew.
type Renewal struct {
	Ref
	TTL time.Duration
}

// Renewed answers one Renewal: either Left, counted from the start of the call,
// or why not.
type Renewed struct {
	Left time.Duration
	Err  error
}

// A Holder is one acquisition as the store has it, live or run out.
type Holder struct {
	ID       string    `json:"id"`
	Owner    string    `json:"owner"`
	Note     string    `json:"note,omitempty"`
	Since    time.Time `json:"since"`
	ExpireAt time.Time `json:"expireAt"`
	Broken   string    `json:"broken,omitempty"` // why an operator broke it; empty if nobody did
}

// A Status is a key as the store saw it at Now, by its own clock.
type Status struct {
	Key     string
	Mode    Mode // of the holders; empty if there are none
	Limit   int
	Holders []Holder // those that ran out included; by Since, then ID
	Wanted  bool     // somebody left word that they wait
	Now     time.Time

	// ExclusiveWantedUntil is how long the word of a waiting writer keeps new shared
	// claims and claims of permits out. Zero, or past, if there is none.
	ExclusiveWantedUntil time.Time
}

// Live reports whether h counts at the moment of the Status.
func (s Status) Live(h Holder) bool { return h.ExpireAt.After(s.Now) }

// Free reports whether nobody holds the key.
func (s Status) Free() bool { return s.Left() == 0 }

// Left is how long it takes until the last holder has run out, if none renews.
func (s Status) Left() time.Duration {
	var left time.Duration
	for _, h := range s.Holders {
		left = max(left, h.ExpireAt.Sub(s.Now))
	}
	return left
}

// Reserved reports whether a writer waits for the holders to leave, so that no
// others but writers are let in. The key may be free then, and still refused.
func (s Status) Reserved() bool { return s.ExclusiveWantedUntil.After(s.Now) }

// A Store keeps the holders of keys. The package comment numbers its duties.
type Store interface {
	// Acquire claims a key: a Grant, a *HeldError, a *MismatchError, or another
	// error as duty 8 says.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Renew answers each entry of the batch in its place: BrokenError for one
	// that was broken, ErrGone for one that is not there, ran out or was released.
	Renew(ctx context.Context, batch []Renewal) []Renewed

	// Release removes a holder, or answers ErrGone where there is none of that
	// ID. One that ran out but is still there is removed like any other. If keep
	// is positive the key stays taken until keep after the holder's Since, which
	// may be sooner or later than its expiry was; from then on it cannot be
	// renewed or transferred. wanted says that the record carried somebody's word.
	Release(ctx context.Context, r Ref, keep time.Duration) (wanted bool, err error)

	// Transfer puts a new claim in the place of a live exclusive holder, in one
	// step: ErrGone if from is not there, ran out or was released, BrokenError if
	// it was broken. The grant's token is a new one.
	Transfer(ctx context.Context, from Ref, to Claim) (Grant, error)

	// Undo cleans up after a claim of unknown outcome. With from nil that was an
	// Acquire, or a Transfer whose from must stay as it is; otherwise a Transfer
	// out of from, and both go. Settled means that none of them holds any more or
	// ever will; without it the claim may still be applied: repeat.
	Undo(ctx context.Context, claim Ref, from *Ref) (settled bool, err error)

	// Break marks a holder, so that its next renewal answers BrokenError with
	// the reason; with now it also removes it. ErrGone if there is none of that ID.
	Break(ctx context.Context, r Ref, reason string, now bool) error

	// Look reads keys without changing them: one Status per key, in order; a key
	// with no record has no holders. Of strangers among them the error tells
	// (ErrForeign); the others are answered all the same.
	Look(ctx context.Context, keys []string) ([]Status, error)

	// List yields the keys that begin with prefix, in order, those whose holders
	// all ran out included. Strangers are passed over. An error ends it.
	List(ctx context.Context, prefix string) iter.Seq2[Status, error]
}

// Prompt marks a store whose calls never block, as one in memory may. The engine
// then spares itself the goroutine that lets a caller go whose context ends while
// a claim is on its way.
type Prompt interface {
	Store
	AnswersAtOnce()
}

// A Notice is a hint that a key may be worth a look. Lost, late or doubled it
// costs time, never safety. Unknown topics and kinds are ignored; all empty, it
// says: look at everything.
type Notice struct {
	Topic string // whose keys
	Key   string
	Kind  string // what happened
}

// The notices that the lock engine sends and heeds.
const (
	TopicLocks = "locks"
	KindFreed  = "freed"
)

// A Feed carries notices between processes. It is optional.
type Feed interface {
	Notify(ctx context.Context, n Notice) error
	// Watch yields notices until its context ends or the caller stops. After an
	// error it ends; the caller may watch again.
	Watch(ctx context.Context) iter.Seq2[Notice, error]
}

// A Withdrawer can take back the word of a waiting writer who gave up, so that it
// does not keep others out until it runs out. It is optional.
type Withdrawer interface {
	// Withdraw removes the writer's word on a key if it ends at until, as a Status
	// told (ExclusiveWantedUntil). A longer one is somebody else's, and stays.
	Withdraw(ctx context.Context, key string, until time.Time) error
}

// FeedOf finds the feed of a store, or of one it wraps (by a method
// Unwrap() Store). Nil if there is none.
func FeedOf(s Store) Feed { return of[Feed](s) }

// WithdrawerOf finds what takes words back, in a store or in one it wraps. Nil if
// there is none.
func WithdrawerOf(s Store) Withdrawer { return of[Withdrawer](s) }

func of[T any](s Store) (none T) {
	for s != nil {
		if found, ok := s.(T); ok {
			return found
		}
		w, ok := s.(interface{ Unwrap() Store })
		if !ok {
			return none
		}
		s = w.Unwrap()
	}
	return none
}
