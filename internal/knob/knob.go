//go:build !knobs

// Package knob holds the switches that take a safety out, so that the tests can
// be seen to notice. In every ordinary build they are constants, and the code
// behind them is compiled away; with -tags knobs they are variables.
package knob

const (
	// DeadlineFromReply counts a lease's deadline from the reply, not the request.
	DeadlineFromReply = false
	// UnknownIsNotHeld takes a claim of unknown outcome for one that failed.
	UnknownIsNotHeld = false
	// LateTimer makes the deadline's timer and clock checks late by so much.
	LateTimer = 0
	// GiveBackAtDeadline gives a lost lease back without waiting for the margin.
	GiveBackAtDeadline = false
	// DoneAfterTransfer tells the old holder only once the new one has the key.
	DoneAfterTransfer = false
	// OneID makes a client send the same ID with every claim of a key.
	OneID = false
)
