//go:build !knobs

// Package knob holds the switches that take a safety out, so that the tests can
// be seen to notice. In every ordinary build they are constants, and the code
// behind them is compiled away; with -tags knobs they are variables.
package knob

import "time"

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
	// Greedy lets a process keep a key for itself while others wait for it.
	Greedy = false
	// OneID makes a client send the same ID with every claim of a key.
	OneID = false
	// DeadlineFromSample rests a deadline on the sample at hand, not on a time drawn after the claim was sent.
	DeadlineFromSample = false
	// HandOverByKey hands a key over whoever holds it.
	HandOverByKey = false
	// ReleaseByKey releases whoever holds the key.
	ReleaseByKey = false
	// RenewalUpserts makes a renewal create what it does not find.
	RenewalUpserts = false
	// RenewalSets makes a renewal write its expiry with $set, so that a late one lowers it.
	RenewalSets = false
	// ReuseID claims again under an ID that is still being cleaned up.
	ReuseID = false
	// CounterToken takes the token from a counter in the document.
	CounterToken = false
	// StampedToken takes the token from a timestamp that the server draws before it inserts.
	StampedToken = false
	// WordAfterLook leaves a waiter's word after the look instead of before.
	WordAfterLook = false
	// SwapByRevAlone takes a key over by its revision, whoever was renewed since.
	SwapByRevAlone = false
	// UndoElsewhere cleans up in another session than the attempt's.
	UndoElsewhere = false
	// UndoOnce cleans up once, also where writes have no transaction numbers.
	UndoOnce = false
	// TwinIgnored takes a slow refusal for final, whatever the driver had sent before.
	TwinIgnored = false
	// JoinWritesMap makes a join write all holders as it saw them, not only its own.
	JoinWritesMap = false
	// JoinKeepsRev makes a join leave the revision as it was.
	JoinKeepsRev = false
	// JoinIgnoresWord lets readers in though a writer waits.
	JoinIgnoresWord = false
	// JoinDropsTheLiving makes a join drop who seemed to have run out, whoever was renewed since.
	JoinDropsTheLiving = false
	// DeleteWithoutRev makes the last to leave delete the document whoever has come in since.
	DeleteWithoutRev = false
	// UndoDeletes makes the clean-up of a join delete the document, with all who share it.
	UndoDeletes = false
	// WriteInPlace writes over a file instead of beside it.
	WriteInPlace = false
	// FileUnsynced renames a file whose content may not be on the disk yet.
	FileUnsynced = false
	// DirectoryUnsynced acknowledges a file whose name may not be on the disk yet.
	DirectoryUnsynced = false
	// LockIgnored takes a file's lock though another process has it.
	LockIgnored = false
)

// On says that the switches are there to be set.
const On = false

// Sleeper would hand each store's clock what its machine slept through without
// counting it.
func Sleeper() func() time.Duration { return nil }
