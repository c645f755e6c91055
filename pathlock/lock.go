package pathlock

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"
)

// Mode says whether a lock suffers others beside it.
type Mode string

// The modes.
const (
	Exclusive Mode = "exclusive" // alone
	Shared    Mode = "shared"    // beside other shared ones
)

// Depth says how far down a lock reaches.
type Depth string

// The depths.
const (
	Zero     Depth = "0"        // the path itself
	Infinity Depth = "infinity" // the path and all that is below it
)

// The bounds of a timeout. Infinite, where the policy allows it, is a lock that
// only a release ends.
const (
	MinTimeout               = 100 * time.Millisecond
	MaxTimeout               = (1<<32 - 1) * time.Second
	Infinite   time.Duration = -1
)

// MaxOwner is how many bytes an owner may have.
const MaxOwner = 16 << 10

// A Request asks for a lock.
type Request struct {
	Path  string
	Mode  Mode
	Depth Depth

	// Timeouts are how long the lock is to last, the best liked first. The tree's
	// policy picks; without any, its default.
	Timeouts []time.Duration

	// Owner is whatever the caller wants to know again; it comes back byte for byte
	// and decides nothing but what ByOwner asks.
	Owner []byte
}

// A Lock is one lock as the storage had it when it answered.
type Lock struct {
	Token   string        `json:"token"` // urn:uuid:…; who has it may refresh, release and write
	Path    string        `json:"path"`  // in its one form, aliases resolved
	Mode    Mode          `json:"mode"`
	Depth   Depth         `json:"depth"`
	Timeout time.Duration `json:"timeout"` // what was granted
	Owner   []byte        `json:"owner,omitempty"`

	// By the storage's clock. An infinite lock has no ExpireAt.
	Since    time.Time `json:"since"`
	ExpireAt time.Time `json:"expireAt,omitzero"`

	// Left is how long the lock is surely still there, unless released, counted from
	// the start of the call that answered it. Infinite for one without end.
	Left time.Duration `json:"-"`
}

// Covers reports whether the lock guards a path given in its one form: its own,
// or with depth Infinity one below.
func (l Lock) Covers(path string) bool {
	return l.Path == path || l.Depth == Infinity && below(path, l.Path)
}

// live reports whether the lock counts at a time of the storage's clock.
func (l *Lock) live(now time.Time) bool { return l.ExpireAt.IsZero() || l.ExpireAt.After(now) }

// answer is a copy that belongs to the caller.
func (l *Lock) answer(now Clock) Lock {
	c := *l
	c.Owner = bytes.Clone(l.Owner)
	c.Left = Infinite
	if !l.ExpireAt.IsZero() {
		c.Left = max(0, l.ExpireAt.Sub(now.Latest))
	}
	return c
}

// newToken is a random UUID (RFC 9562, version 4) as a URN.
func newToken() string {
	var id [16]byte
	rand.Read(id[:]) // which never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	text := hex.EncodeToString(id[:])
	return "urn:uuid:" + text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// check refuses what cannot be asked for, by name and value.
func (r Request) check() error {
	switch {
	case r.Mode != Exclusive && r.Mode != Shared:
		return fmt.Errorf("pathlock: Request.Mode is %q: must be %q or %q", r.Mode, Exclusive, Shared)
	case r.Depth != Zero && r.Depth != Infinity:
		return fmt.Errorf("pathlock: Request.Depth is %q: must be %q or %q", r.Depth, Zero, Infinity)
	case len(r.Owner) > MaxOwner:
		return fmt.Errorf("pathlock: Request.Owner has %d bytes: at most %d", len(r.Owner), MaxOwner)
	}
	return checkTimeouts("Request.Timeouts", r.Timeouts)
}

func checkTimeouts(name string, wishes []time.Duration) error {
	for i, wish := range wishes {
		if !isTimeout(wish) {
			return fmt.Errorf("pathlock: %s[%d] is %v: must be %v to %v, or Infinite", name, i, wish, MinTimeout, MaxTimeout)
		}
	}
	return nil
}

func isTimeout(d time.Duration) bool {
	return d == Infinite || d >= MinTimeout && d <= MaxTimeout
}
