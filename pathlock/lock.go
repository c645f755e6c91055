package pathlock

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"
)

// Mode says whether other locks may overlap a lock.
type Mode string

// The modes. The zero value of a Request's mode stands for Exclusive.
const (
	Exclusive Mode = "exclusive" // no other lock overlaps it
	Shared    Mode = "shared"    // other shared locks may overlap it
)

// Depth says how far down a lock reaches.
type Depth string

// The depths. The zero value of a Request's depth stands for Infinity.
const (
	Zero     Depth = "0"        // the path itself
	Infinity Depth = "infinity" // the path and all that is below it
)

// The limits of a timeout. An Infinite lock, where the policy allows it, ends only with its
// release.
const (
	MinTimeout               = 100 * time.Millisecond
	MaxTimeout               = (1<<32 - 1) * time.Second
	Infinite   time.Duration = -1
)

// maxOwner is the largest size of an owner, in bytes.
const maxOwner = 16 << 10

// A Request asks for a lock. The zero Request asks for an exclusive lock on everything.
type Request struct {
	Path  string // "" is the root
	Mode  Mode   // "" is Exclusive
	Depth Depth  // "" is Infinity

	// Timeouts are the lifetimes that the caller wishes for, the preferred one first. The
	// tree's Limits pick one; without any they pick their default.
	Timeouts []time.Duration

	// Owner is any text that describes the owner, of at most 16 KB. It is returned byte for byte, and
	// has no influence. nil is that of WithOwner.
	Owner []byte
}

// A Lock is one lock as the storage had it when it answered.
type Lock struct {
	Token   string        `json:"token"` // urn:uuid:…; any caller that has it may refresh, release and write
	Path    string        `json:"path"`  // in its clean form, with aliases resolved
	Mode    Mode          `json:"mode"`
	Depth   Depth         `json:"depth"`
	Timeout time.Duration `json:"timeout"` // the one that was granted
	Owner   []byte        `json:"owner,omitempty"`

	// Since and ExpireAt are times of the storage's clock. An infinite lock has no ExpireAt.
	Since    time.Time `json:"since"`
	ExpireAt time.Time `json:"expireAt,omitzero"`

	// Left is how long the lock certainly lasts, unless it is released, counted from the start
	// of the call that returned it. It is Infinite for a lock without end.
	Left time.Duration `json:"-"`

	moved time.Duration // in a file: by how much its end was moved since the host was started
}

// Covers reports whether the lock guards a path in its clean form: the lock's own path
// or, with depth Infinity, one below it.
func (l Lock) Covers(path string) bool {
	return l.Path == path || l.Depth == Infinity && below(path, l.Path)
}

// restart gives the lock the timeout of a refresh: see treeStore.
func (l *Lock) restart(timeout time.Duration, least bool) {
	if timeout != 0 && !(least && (l.Timeout == Infinite || timeout != Infinite && timeout < l.Timeout)) {
		l.Timeout = timeout
	}
}

// live reports whether the lock has not run out at a time of the storage's clock.
func (l *Lock) live(now time.Time) bool { return l.ExpireAt.IsZero() || l.ExpireAt.After(now) }

// answer returns a copy that belongs to the caller.
func (l *Lock) answer(now interval) Lock {
	c := *l
	c.Owner = bytes.Clone(l.Owner)
	c.Left = Infinite
	if !l.ExpireAt.IsZero() {
		c.Left = max(0, l.ExpireAt.Sub(now.Latest))
	}
	return c
}

// copied returns a copy with an owner of its own.
func (l Lock) copied() Lock {
	l.Owner = bytes.Clone(l.Owner)
	return l
}

// newToken makes a random UUID (RFC 9562, version 4), as a URN.
func newToken() string {
	var id [16]byte
	rand.Read(id[:]) // it never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	text := hex.EncodeToString(id[:])
	return "urn:uuid:" + text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// filled replaces the zero values by what they stand for.
func (r Request) filled() Request {
	if r.Mode == "" {
		r.Mode = Exclusive
	}
	if r.Depth == "" {
		r.Depth = Infinity
	}
	return r
}

// check refuses a request that cannot be met, by field and value.
func (r Request) check() error {
	switch {
	case r.Mode != Exclusive && r.Mode != Shared:
		return fmt.Errorf("pathlock: Request.Mode is %q: must be %q or %q", r.Mode, Exclusive, Shared)
	case r.Depth != Zero && r.Depth != Infinity:
		return fmt.Errorf("pathlock: Request.Depth is %q: must be %q or %q", r.Depth, Zero, Infinity)
	case len(r.Owner) > maxOwner:
		return fmt.Errorf("pathlock: Request.Owner has %d bytes: at most %d", len(r.Owner), maxOwner)
	}
	return checkTimeouts("Request.Timeouts", r.Timeouts)
}

func checkTimeouts(name string, wishes []time.Duration) error {
	for i, wish := range wishes {
		if wish != Infinite && (wish < MinTimeout || wish > MaxTimeout) {
			return fmt.Errorf("pathlock: %s[%d] is %v: must be %v to %v, or Infinite", name, i, wish, MinTimeout, MaxTimeout)
		}
	}
	return nil
}
