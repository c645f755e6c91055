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
	Greedy             bool
	OneID              bool
	DeadlineFromSample bool
	HandOverByKey      bool
	ReleaseByKey       bool
	RenewalUpserts     bool
	RenewalSets        bool
	ReuseID            bool
	CounterToken       bool
	StampedToken       bool
	WordAfterLook      bool
	SwapByRevAlone     bool
	UndoElsewhere      bool
	UndoOnce           bool
	TwinIgnored        bool
	JoinWritesMap      bool
	JoinKeepsRev       bool
	JoinIgnoresWord    bool
	JoinDropsTheLiving bool
	DeleteWithoutRev   bool
	UndoDeletes        bool
	WriteInPlace       bool
	FileUnsynced       bool
	DirectoryUnsynced  bool
	LockIgnored        bool
)

// On says that the switches are there to be set.
const On = true

// Sleeper hands each store's clock, as it is made, what its machine has slept
// through without counting it; nil for one that never sleeps.
var Sleeper = func() func() time.Duration { return nil }
