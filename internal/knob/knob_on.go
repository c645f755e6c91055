//go:build knobs

// Package knob holds the switches that take a safety out; see knob.go.
package knob

import "time"

// The switches as variables. A test sets one before its bubble starts and puts
// it back when the bubble is over; tests that do may not run in parallel.
var (
	DeadlineFromReply  bool
	UnknownIsNotHeld   bool
	LateTimer          time.Duration
	GiveBackAtDeadline bool
	DoneAfterTransfer  bool
	OneID              bool
)
