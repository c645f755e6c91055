package mongolock

import (
	"crypto/rand"
	"sync"
)

// What crypto/rand.Text makes: 26 letters of 32, which is 130 bits.
const (
	idLetters  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	idLength   = 26
	idsAtATime = 8
)

// ids yields the names of acquisitions, as random as crypto/rand.Text and of its
// form. They are drawn a few at a time: it halves the price of one. The few are kept
// in one string, which lives as long as any of them.
type ids struct {
	mu   sync.Mutex
	left string
}

func (d *ids) next() string {
	d.mu.Lock()
	if d.left == "" {
		var draw [idsAtATime * idLength]byte
		_, _ = rand.Read(draw[:]) // never fails
		for i, b := range draw {
			draw[i] = idLetters[b%32]
		}
		d.left = string(draw[:])
	}
	id := d.left[:idLength]
	d.left = d.left[idLength:]
	d.mu.Unlock()
	return id
}
