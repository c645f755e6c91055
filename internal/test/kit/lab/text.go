package lab

import (
	"strings"
	"sync"
)

// A Text is written by loggers and read by a test, at the same time.
type Text struct {
	mu   sync.Mutex // protects text
	text strings.Builder
}

func (t *Text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
