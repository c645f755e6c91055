//go:build knobs

// Package knob holds the switches that take a safety out; knob.go explains each.
package knob

import "time"

// The switches are variables here. A test sets one before its bubble starts and resets it
// after the bubble. Such tests must not run in parallel.
var (
	DeadlineFromReply     bool
	UnknownIsNotHeld      bool
	LateTimer             time.Duration
	GiveBackAtDeadline    bool
	DoneAfterTransfer     bool
	Greedy                bool
	OneID                 bool
	DeadlineFromSample    bool
	HandOverByKey         bool
	ReleaseByKey          bool
	RenewalUpserts        bool
	RenewalSets           bool
	ReuseID               bool
	CounterToken          bool
	StampedToken          bool
	WordAfterLook         bool
	SwapByRevAlone        bool
	SwapWithoutRev        bool
	SwapByDate            bool
	HelloBeforeLook       bool
	StillFromSending      bool
	RenewalKeepsBeat      bool
	BeatCounts            bool
	EpochOfReader         bool
	MarkIgnored           bool
	UndoElsewhere         bool
	UndoOnce              bool
	TwinIgnored           bool
	JoinWritesMap         bool
	JoinKeepsRev          bool
	JoinIgnoresWord       bool
	JoinDropsTheLiving    bool
	DeleteWithoutRev      bool
	UndoDeletes           bool
	SaveByKey             bool
	SaveSoftly            bool
	UpdateRepeated        bool
	TakenUnmarked         bool
	MarkUnvoted           bool
	SessionRevived        bool
	SessionOverstayed     bool
	SessionReused         bool
	ReleaseUnvoted        bool
	SweepByKey            bool
	SweepByID             bool
	PruneBlindly          bool
	UnderUnseen           bool
	EnteredUnseen         bool
	TogetherAfterAlone    bool
	AloneKeepsRev         bool
	ShardsOfOneClock      bool
	PathWithoutLook       bool
	PathDoubtIgnored      bool
	PathGrantUntold       bool
	PathByOwnClock        bool
	PathRefreshRevives    bool
	PathRefreshAbandoned  bool
	PathReleaseByPath     bool
	PathAncestorForgotten bool
	PathDropWithoutRev    bool
	ObserverAwaited       bool
	WriteInPlace          bool
	FileUnsynced          bool
	DirectoryUnsynced     bool
	StaleLockKept         bool
	LockIgnored           bool
	FileByWallClock       bool
	FileBootIgnored       bool
	LingerIgnoresWord     bool
	LocalGrantRenews      bool
	LocalTokenKept        bool
	AnnouncedOnce         bool
	PartialBulkKept       bool
	BulkIgnoresWord       bool
)

// On reports whether this build has switches that can be set.
const On = true

// Sleeper is called for each new clock of a store and for each new meter of package suspend. It
// returns a function that tells how long the machine has slept without the monotonic clock
// counting it, or nil if the machine never sleeps.
var Sleeper = func() func() time.Duration { return nil }

// Pick returns faulty if the switch is on, else right.
func Pick[T any](on bool, faulty, right T) T {
	if on {
		return faulty
	}
	return right
}
