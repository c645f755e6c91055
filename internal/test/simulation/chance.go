package simulation

import (
	"crypto/rand"
	"encoding/binary"
	"hash/fnv"
	"io"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
)

// An rng is a random source that depends on the seed and a name, and on nothing else. A
// name is part of what a seed means: with another name the seed is another history.
type rng struct{ state uint64 }

func (w *world) rng(name string) *rng {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return &rng{state: h.Sum64() ^ w.seed*0x9e3779b97f4a7c15}
}

// next is splitmix64.
func (d *rng) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// n returns a number from 0 to most-1.
func (d *rng) n(most int) int { return int(d.next() % uint64(most)) }

// between returns a duration, to the nanosecond.
func (d *rng) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.next()%uint64(most-least+1))
}

// chance returns true in this many of a thousand cases.
func (d *rng) chance(permille int) bool { return d.n(1000) < permille }

// oneOf returns one of some values, each equally likely.
func oneOf[T any](d *rng, some ...T) T { return some[d.n(len(some))] }

// Seeded replaces crypto/rand's reader by one that depends on a seed, until restore. Two
// goroutines that draw in one instant may do so in either order, so all jitter of one
// instant is the same. IDs must differ: which of them goes to which goroutine is left open,
// and IDs are not in the log.
func Seeded(seed uint64) (restore func()) {
	before := rand.Reader
	rand.Reader = &seeded{seed: seed}
	return func() { rand.Reader = before }
}

type seeded struct {
	seed uint64

	mu   sync.Mutex // protects the rest
	at   int64      // the instant
	more uint64     // how often something else than jitter was drawn in it
}

// Read fills p.
func (s *seeded) Read(p []byte) (int, error) {
	d := rng{state: s.seed ^ s.instant(len(p))}
	var word [8]byte
	for i := range p {
		if i%8 == 0 {
			binary.LittleEndian.PutUint64(word[:], d.next())
		}
		p[i] = word[i%8]
	}
	return len(p), nil
}

// instant returns a number that stands for now. For all but jitter each draw gets another.
func (s *seeded) instant(size int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now().UnixNano(); now != s.at {
		s.at, s.more = now, 0
	}
	d := rng{state: uint64(s.at)}
	n := d.next()
	if size == backoff.JitterSize {
		return n
	}
	s.more++
	return n + s.more*0x9e3779b97f4a7c15 + 1
}

var _ io.Reader = (*seeded)(nil)
