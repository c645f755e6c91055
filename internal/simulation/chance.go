package simulation

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	"sync"
	"time"
)

// jitterSize is how many bytes the engine draws to jitter a pause.
const jitterSize = 8

// Seeded puts chance that hangs on a seed in the place of crypto/rand's, until it is
// told to put that back. Two goroutines that draw in one instant may do so in either
// order, so all jitter of an instant is the same. IDs must differ: which of them
// is whose is left open, and is not in the log.
func Seeded(seed uint64) (restore func()) {
	before := rand.Reader
	rand.Reader = &seeded{seed: seed}
	return func() { rand.Reader = before }
}

type seeded struct {
	seed uint64

	mu   sync.Mutex // protects the rest
	at   int64      // the instant
	more uint64     // draws in it, but for jitter
}

// Read fills p.
func (s *seeded) Read(p []byte) (int, error) {
	d := dice{state: s.seed ^ s.instant(len(p))}
	var word [8]byte
	for i := range p {
		if i%8 == 0 {
			binary.LittleEndian.PutUint64(word[:], d.next())
		}
		p[i] = word[i%8]
	}
	return len(p), nil
}

// instant is a number for now, and for all but jitter of its own.
func (s *seeded) instant(size int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now().UnixNano(); now != s.at {
		s.at, s.more = now, 0
	}
	d := dice{state: uint64(s.at)}
	n := d.next()
	if size == jitterSize {
		return n
	}
	s.more++
	return n + s.more*0x9e3779b97f4a7c15 + 1
}

var _ io.Reader = (*seeded)(nil)
