// Package knob holds the switches that take a safety out, so that a control can show that the tests
// notice. The code that they switch stands in the patches of internal/test/controls.
package knob

import "time"

// A test sets a switch before its bubble starts and resets it after the bubble. Such tests must not
// run in parallel.
var (
	// DeadlineFromReply counts a lease's deadline from the reply, not from the request.
	DeadlineFromReply bool
	// UnknownIsNotHeld treats a claim of unknown outcome as one that failed.
	UnknownIsNotHeld bool
	// LateTimer is how late the deadline's timer and clock checks are.
	LateTimer time.Duration
	// GiveBackAtDeadline releases a lost lease at its deadline, not one margin later.
	GiveBackAtDeadline bool
	// DoneAfterTransfer closes the old lease's Done only once the new holder has the key.
	DoneAfterTransfer bool
	// Greedy lets a process keep a key while other processes wait for it.
	Greedy bool
	// OneID makes a client send the same ID with every claim of a key.
	OneID bool
	// DeadlineFromSample bases a deadline on the sample at hand, not on a time drawn after the claim was sent.
	DeadlineFromSample bool
	// HandOverByKey hands a key over without checking its holder.
	HandOverByKey bool
	// ReleaseByKey releases a key without checking its holder.
	ReleaseByKey bool
	// RenewalUpserts makes a renewal create a document that it does not find.
	RenewalUpserts bool
	// RenewalSets makes a renewal write its expiry with $set, so that a late renewal lowers it.
	RenewalSets bool
	// ReuseID repeats a claim under an ID that is still being cleaned up.
	ReuseID bool
	// CounterToken takes the token from a counter in the document.
	CounterToken bool
	// StampedToken takes the token from a timestamp that the server draws before it inserts.
	StampedToken bool
	// LineIgnored grants keys whoever waits for them in line.
	LineIgnored bool
	// WeightIgnored grants permits as if each claim took one.
	WeightIgnored bool
	// LargestLimit judges a claim of permits by the largest number that any claim has named.
	LargestLimit bool
	// GrantOutOfTurn grants a key to a claim whose turn it was when it looked, without comparing who is in line.
	GrantOutOfTurn bool
	// StalePassedBlindly passes a place that was stale, although its waiter was seen there since.
	StalePassedBlindly bool
	// OfferUncompared takes a key that was offered without comparing that nobody else holds it.
	OfferUncompared bool
	// ReleaseDropsLine removes a holder's document although others are in its line.
	ReleaseDropsLine bool
	// ReleaseKeepsRev keeps the revision of a document that a holder leaves to its line.
	ReleaseKeepsRev bool
	// SwapByRevAlone takes a key over by its revision alone, even if a holder was renewed meanwhile.
	SwapByRevAlone bool
	// SwapWithoutRev takes a key over regardless of its document's revision.
	SwapWithoutRev bool
	// SwapByDate names the dates of the holders that a take-over drops, in place of their beats.
	SwapByDate bool
	// HelloBeforeLook asks for the election before the look that judges by it.
	HelloBeforeLook bool
	// StillFromSending counts the time of an unchanged holder from the sending of the look that first saw it.
	StillFromSending bool
	// RenewalKeepsBeat leaves a holder's beat as it was when the holder is renewed.
	RenewalKeepsBeat bool
	// BeatCounts makes a beat a counter, which shows an old number again after a rollback.
	BeatCounts bool
	// EpochOfReader takes a holder for one that was written under the reader's election.
	EpochOfReader bool
	// MarkIgnored takes every document under a key for one of this library.
	MarkIgnored bool
	// UndoElsewhere cleans up in another session than the attempt's.
	UndoElsewhere bool
	// UndoOnce cleans up only once, even where writes have no transaction numbers.
	UndoOnce bool
	// TwinIgnored treats a slow refusal as final, though the driver may have sent the claim twice.
	TwinIgnored bool
	// JoinWritesMap makes a join write the whole map of holders as it saw them, not only its own entry.
	JoinWritesMap bool
	// JoinKeepsRev makes a join keep the document's revision.
	JoinKeepsRev bool
	// JoinDropsTheLiving makes a join drop holders that looked expired, even if they were renewed meanwhile.
	JoinDropsTheLiving bool
	// LastDeletesHeld makes the last holder to leave delete the document, even if another has joined meanwhile.
	LastDeletesHeld bool
	// UndoDeletes makes the clean-up of a join delete the document and with it all other holders.
	UndoDeletes bool
	// SaveByKey makes a document's save that releases it name the document alone, not its holder.
	SaveByKey bool
	// SaveSoftly has one node alone acknowledge such a save.
	SaveSoftly bool
	// UpdateRepeated lets the driver send again the claim of an Update, which one node alone acknowledges.
	UpdateRepeated bool
	// ShardsOfOneClock judges a holder by the newest server time, though another shard may have told it.
	ShardsOfOneClock bool
	// PathWithoutLook grants a path lock that was looked for only before it was announced.
	PathWithoutLook bool
	// PathDoubtIgnored grants a path lock beside one that was added a moment ago.
	PathDoubtIgnored bool
	// PathByOwnClock judges the expiry of path locks by a clock that is two seconds ahead.
	PathByOwnClock bool
	// PathRefreshRevives refreshes a path lock that may have run out.
	PathRefreshRevives bool
	// PathRefreshAbandoned goes on with a refresh whose caller has left.
	PathRefreshAbandoned bool
	// PathReleaseByPath releases a path lock by its path, regardless of its token.
	PathReleaseByPath bool
	// PathDropWithoutRev removes a record that is in the way of a path lock, although it has
	// changed meanwhile.
	PathDropWithoutRev bool
	// PathAncestorForgotten looks for path locks on the path itself and below, not above.
	PathAncestorForgotten bool
	// OutrankedLeads leads though a candidate of a higher priority waits, until the next look.
	OutrankedLeads bool
	// RoomMadeAgain makes room for a candidate of a higher priority again and again, however often it did not come.
	RoomMadeAgain bool
	// PathReservationIgnored grants shared path locks past the reservation of an exclusive waiter.
	PathReservationIgnored bool
	// ObserverAwaited has renewals and the ends of leases wait for the observer.
	ObserverAwaited bool
	// WriteInPlace overwrites a file instead of replacing it.
	WriteInPlace bool
	// FileUnsynced renames a file before its content is synced.
	FileUnsynced bool
	// DirectoryUnsynced acknowledges a write before the directory is synced.
	DirectoryUnsynced bool
	// StaleLockKept goes on with the lock of a file that was removed.
	StaleLockKept bool
	// LockIgnored enters a file's lock though another process holds it.
	LockIgnored bool
	// FileByWallClock judges leases in files by the wall clock.
	FileByWallClock bool
	// FileBootIgnored takes the time since another start of the host for the time since this one.
	FileBootIgnored bool
	// UsedTogether lets the uses of a key that is kept not wait for each other.
	UsedTogether bool
	// AnnouncedOnce announces a release beside its command and never after it.
	AnnouncedOnce bool
	// LaterKeysKept makes AcquireAll keep what it was granted after the first key that was refused.
	LaterKeysKept bool
	// DeathsUncounted repeats a job's run that died as if it had not.
	DeathsUncounted bool
	// DropsForgotten claims a due time without a word of those that it drops.
	DropsForgotten bool
)

// Sleeper is called for each new clock of a store and for each new meter of package monotonic. It
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
