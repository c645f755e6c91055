//go:build !knobs

// Package knob holds the switches that take a safety out, so that a control can show
// that the tests notice. In an ordinary build the switches are constants and the faulty
// code is compiled away. With -tags knobs they are variables.
package knob

import "time"

const (
	// DeadlineFromReply counts a lease's deadline from the reply, not from the request.
	DeadlineFromReply = false
	// UnknownIsNotHeld treats a claim of unknown outcome as one that failed.
	UnknownIsNotHeld = false
	// LateTimer is how late the deadline's timer and clock checks are.
	LateTimer = 0
	// GiveBackAtDeadline releases a lost lease at its deadline, not one margin later.
	GiveBackAtDeadline = false
	// DoneAfterTransfer closes the old lease's Done only once the new holder has the key.
	DoneAfterTransfer = false
	// Greedy lets a process keep a key while other processes wait for it.
	Greedy = false
	// OneID makes a client send the same ID with every claim of a key.
	OneID = false
	// DeadlineFromSample bases a deadline on the sample at hand, not on a time drawn after the claim was sent.
	DeadlineFromSample = false
	// HandOverByKey hands a key over without checking its holder.
	HandOverByKey = false
	// ReleaseByKey releases a key without checking its holder.
	ReleaseByKey = false
	// RenewalUpserts makes a renewal create a document that it does not find.
	RenewalUpserts = false
	// RenewalSets makes a renewal write its expiry with $set, so that a late renewal lowers it.
	RenewalSets = false
	// ReuseID repeats a claim under an ID that is still being cleaned up.
	ReuseID = false
	// CounterToken takes the token from a counter in the document.
	CounterToken = false
	// StampedToken takes the token from a timestamp that the server draws before it inserts.
	StampedToken = false
	// WordAfterLook writes a waiter's word after its look, not before.
	WordAfterLook = false
	// SwapByRevAlone takes a key over by its revision alone, even if a holder was renewed meanwhile.
	SwapByRevAlone = false
	// SwapWithoutRev takes a key over regardless of its document's revision.
	SwapWithoutRev = false
	// SwapByDate names the dates of the holders that a take-over drops, in place of their beats.
	SwapByDate = false
	// HelloBeforeLook asks for the election before the look that judges by it.
	HelloBeforeLook = false
	// StillFromSending counts the time of an unchanged holder from the sending of the look that first saw it.
	StillFromSending = false
	// RenewalKeepsBeat leaves a holder's beat as it was when the holder is renewed.
	RenewalKeepsBeat = false
	// BeatCounts makes a beat a counter, which shows an old number again after a rollback.
	BeatCounts = false
	// EpochOfReader takes a holder for one that was written under the reader's election.
	EpochOfReader = false
	// MarkIgnored takes every document under a key for one of this library.
	MarkIgnored = false
	// UndoElsewhere cleans up in another session than the attempt's.
	UndoElsewhere = false
	// UndoOnce cleans up only once, even where writes have no transaction numbers.
	UndoOnce = false
	// TwinIgnored treats a slow refusal as final, though the driver may have sent the claim twice.
	TwinIgnored = false
	// JoinWritesMap makes a join write the whole map of holders as it saw them, not only its own entry.
	JoinWritesMap = false
	// JoinKeepsRev makes a join keep the document's revision.
	JoinKeepsRev = false
	// JoinIgnoresWord lets readers join though a writer waits.
	JoinIgnoresWord = false
	// JoinDropsTheLiving makes a join drop holders that looked expired, even if they were renewed meanwhile.
	JoinDropsTheLiving = false
	// DeleteWithoutRev makes the last holder to leave delete the document, even if another has joined meanwhile.
	DeleteWithoutRev = false
	// UndoDeletes makes the clean-up of a join delete the document and with it all other holders.
	UndoDeletes = false
	// SaveByKey makes a document's save that releases it name the document alone, not its holder.
	SaveByKey = false
	// SaveSoftly has one node alone acknowledge such a save.
	SaveSoftly = false
	// UpdateRepeated lets the driver send again the claim of an Update, which one node alone acknowledges.
	UpdateRepeated = false
	// TakenUnmarked takes a key over whose session ran out without marking the session dead.
	TakenUnmarked = false
	// MarkUnvoted marks a session dead on one member, not on a majority.
	MarkUnvoted = false
	// SessionRevived renews a session that was marked dead, and goes on with one after its deadline.
	SessionRevived = false
	// SessionOverstayed trusts a session for its TTL longer than it may be trusted.
	SessionOverstayed = false
	// SessionReused begins a session under the ID of the one before.
	SessionReused = false
	// ReleaseUnvoted releases what a session keeps as if its end were near: by one node.
	ReleaseUnvoted = false
	// SweepByKey removes what a dead session left by its key, regardless of the holder.
	SweepByKey = false
	// SweepByID removes what a dead session left by its ID, although it was renewed since the
	// sweep's look.
	SweepByID = false
	// PruneBlindly takes sessions out of a document without checking whether a holder came
	// under them since the look.
	PruneBlindly = false
	// UnderUnseen takes a key over, and sweeps it, whatever session its holder has come under
	// since the look.
	UnderUnseen = false
	// EnteredUnseen assumes that all holders of an update came under a session, whatever the
	// answer.
	EnteredUnseen = false
	// TogetherAfterAlone puts holders under a session together although the own renewal of one
	// of them may still name another session.
	TogetherAfterAlone = false
	// AloneKeepsRev leaves the revision as it was when a holder leaves its session.
	AloneKeepsRev = false
	// ShardsOfOneClock judges a holder by the newest server time, though another shard may have told it.
	ShardsOfOneClock = false
	// PathWithoutLook grants a path lock that was looked for only before it was announced.
	PathWithoutLook = false
	// PathDoubtIgnored grants a path lock beside one that was added a moment ago.
	PathDoubtIgnored = false
	// PathGrantUntold stores no event for watchers when it grants a path lock.
	PathGrantUntold = false
	// PathByOwnClock judges the expiry of path locks by a clock that is two seconds ahead.
	PathByOwnClock = false
	// PathRefreshRevives refreshes a path lock that may have run out.
	PathRefreshRevives = false
	// PathRefreshAbandoned goes on with a refresh whose caller has left.
	PathRefreshAbandoned = false
	// PathReleaseByPath releases a path lock by its path, regardless of its token.
	PathReleaseByPath = false
	// PathDropWithoutRev removes a record that is in the way of a path lock, although it has
	// changed meanwhile.
	PathDropWithoutRev = false
	// PathAncestorForgotten looks for path locks on the path itself and below, not above.
	PathAncestorForgotten = false
	// ObserverAwaited waits for an observer for as long as it takes.
	ObserverAwaited = false
	// WriteInPlace overwrites a file instead of replacing it.
	WriteInPlace = false
	// FileUnsynced renames a file before its content is synced.
	FileUnsynced = false
	// DirectoryUnsynced acknowledges a write before the directory is synced.
	DirectoryUnsynced = false
	// StaleLockKept goes on with the lock of a file that was removed.
	StaleLockKept = false
	// LockIgnored enters a file's lock though another process holds it.
	LockIgnored = false
	// FileByWallClock judges leases in files by the wall clock.
	FileByWallClock = false
	// FileBootIgnored takes the time since another start of the host for the time since this one.
	FileBootIgnored = false
	// LingerIgnoresWord keeps a released key though others wait for it.
	LingerIgnoresWord = false
	// LocalGrantRenews treats a local grant as a renewal, whatever the deadline of the lease
	// that is kept.
	LocalGrantRenews = false
	// LocalTokenKept gives a local grant the token of the one before.
	LocalTokenKept = false
	// AnnouncedOnce announces a release beside its command and never after it.
	AnnouncedOnce = false
	// PartialBulkKept makes AcquireAll keep the leases that a bulk granted after the first key
	// that it was refused.
	PartialBulkKept = false
	// BulkIgnoresWord makes a bulk of releases delete documents in which a waiter has left
	// word, without reporting the word.
	BulkIgnoresWord = false
)

// On reports whether this build has switches that can be set.
const On = false

// Sleeper returns nil: no clock of this build misses time asleep on purpose.
func Sleeper() func() time.Duration { return nil }

// Pick returns right. It is inlined, and faulty is compiled away with it.
func Pick[T any](_ bool, _, right T) T { return right }
