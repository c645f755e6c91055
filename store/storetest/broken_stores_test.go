package storetest

import (
	"slices"

	"github.com/mongolock/mongolock/store"
)

// brokenStores has a store for each mistake that a store can make, with the claims that
// must fail on it. Those about the line, modes, reading, foreign records and the feed are in files
// of their own.
var brokenStores = slices.Concat([]broken{
	{"ReleaseByKey", func() store.Store { return releaseByKey{newSound()} },
		[]string{"AReleaseAffectsOnlyTheHolderItNames", "ASecondReleaseAnswersErrGone", "ATakeoverReplacesTheExpiredHolder"}},
	{"ReleaseWithoutEffect", func() store.Store { return releaseWithoutEffect{newSound()} },
		[]string{"AReleaseFreesTheKeyAtOnce", "AnExpiredHolderCanBeReleased", "ARenewalAfterAReleaseAnswersErrGone"}},
	{"KeepIgnored", func() store.Store { return keepIgnored{newSound()} },
		[]string{"AReleaseCanKeepTheKeyForLessThanItsTTL", "AReleaseCanKeepTheKeyForLongerThanItsTTL", "AKeptKeyCannotBeRenewedOrTransferred"}},
	{"KeepThatOnlyRenews", func() store.Store { return keepThatOnlyRenews{newSound()} },
		[]string{"AKeptKeyCannotBeRenewedOrTransferred", "AKeptKeyIsFreeOnceItsTimeIsOver"}},
	{"KeptThenBroken", newKeptThenBroken,
		[]string{"AKeptKeyThatIsBrokenIsGoneForItsHolder"}},
	{"RenewalRevives", func() store.Store { return renewalRevives{newSound()} },
		[]string{"ARenewalNeverRevivesAnExpiredHolder"}},
	{"RenewalShortens", func() store.Store { return renewalMoves{newSound()} },
		[]string{"ARenewalNeverShortensTheExpiry", "ARenewalChangesOnlyTheExpiry"}},
	{"RenewalCreates", func() store.Store { return renewalCreates{newSound()} },
		[]string{"ARenewalNeverCreatesAHolder", "ARenewalAfterAReleaseAnswersErrGone", "AHolderRemovedByHandIsGone"}},
	{"RenewalByKey", func() store.Store { return renewalByKey{newSound()} },
		[]string{"ARenewalAffectsOnlyTheHolderItNames"}},
	{"RenewalWithoutEffect", func() store.Store { return renewalWithoutEffect{newSound()} },
		[]string{"ARenewalRestartsTheTTL"}},
	{"BatchOutOfOrder", func() store.Store { return batchOutOfOrder{newSound()} },
		[]string{"ABatchIsAnsweredInItsOrder", "ArgumentsAreNotChanged"}},
	{"BatchCutShort", func() store.Store { return batchCutShort{newSound()} },
		[]string{"ABatchCanBeEmptyOrFull"}},
	{"TokenRestartsAtRelease", func() store.Store { return newTokenInRecord(true) },
		[]string{"TokensIncreaseHoweverAHolderEnds"}},
	{"TokenRestartsWhenPurged", func() store.Store { return newTokenInRecord(false) },
		[]string{"TokensIncreaseAcrossRemovalByHand"}},
	{"ClockOfTheCaller", func() store.Store { return newClockOfTheCaller() },
		[]string{"AHolderIsHonouredUntilItExpires", "AStatusShowsTheStoresTime", "AHeldKeyIsRefusedWithItsStatus"}},
	{"ClockOfAStaleSample", func() store.Store { return newClockOfAStaleSample() },
		[]string{"AHolderIsHonouredUntilItExpires"}},
	{"LeftLongerThanHonoured", func() store.Store { return leftLongerThanHonoured{newSound()} },
		[]string{"AHolderIsHonouredUntilItExpires", "AFreeKeyIsGranted"}},
	{"HeldWithoutStatus", func() store.Store { return heldWithoutStatus{newSound()} },
		[]string{"AHeldKeyIsRefusedWithItsStatus"}},
	{"HeldWithAStatusSeenBefore", func() store.Store { return heldWithAStatusSeenBefore{newSound()} },
		[]string{"OneOfManyClaimsOfANewKeyWins", "OneOfManyClaimsOfAnExpiredKeyWins"}},
	{"RefusalLeavesATrace", func() store.Store { return refusalLeavesATrace{newSound()} },
		[]string{"ARefusedClaimLeavesNoTrace"}},
	{"CheckThenAct", func() store.Store { return checkThenAct{newSound()} },
		[]string{"OneOfManyClaimsOfANewKeyWins", "OneOfManyClaimsOfAnExpiredKeyWins", "TwoContendersNeverHoldTheKeyAtOnce"}},
	{"ExpiredKeysStayTaken", func() store.Store { return expiredKeysStayTaken{newSound()} },
		[]string{"AHolderIsHonouredUntilItExpires", "ATakeoverReplacesTheExpiredHolder"}},
	{"TransferWithoutCheckingFrom", func() store.Store { return transferUnchecked{newSound()} },
		[]string{"ATransferAffectsOnlyTheHolderItNames", "ATransferFromAReleasedHolderIsRefused", "ATransferFromAnExpiredHolderIsRefused",
			"ATransferFromABrokenHolderIsRefused", "ATransferTakesTheHoldersPlace"}},
	{"TransferInTwoSteps", func() store.Store { return transferInTwoSteps{newSound()} },
		[]string{"AKeyIsNeverFreeDuringATransfer"}},
	{"TransferCheckedBefore", func() store.Store { return transferCheckedBefore{newSound()} },
		[]string{"OneOfManyTransfersWins"}},
	{"TransferKeepsTheOldTime", func() store.Store { return transferKeepsTheOldTime{newSound()} },
		[]string{"ATransferStartsANewTTL"}},
	{"UndoByKey", func() store.Store { return undoByKey{newSound()} },
		[]string{"AnUndoAffectsOnlyTheHoldersItNames", "AnUndoThatNamesNoSourceLeavesTheSource"}},
	{"UndoForgetsFrom", func() store.Store { return undoForgetsFrom{newSound()} },
		[]string{"AnUndoOfATransferThatWasNotAppliedRemovesItsSource"}},
	{"UndoForgetsTheClaim", func() store.Store { return undoForgetsTheClaim{newSound()} },
		[]string{"AnUndoRemovesAnAppliedClaim", "AnUndoOfAnAppliedTransferFreesTheKey"}},
	{"UndoReserves", func() store.Store { return undoReserves{newSound()} },
		[]string{"AnUndoOfAClaimThatWasNotAppliedChangesNothing"}},
	{"BreakByKey", func() store.Store { return breakByKey{newSound()} },
		[]string{"ABreakAffectsOnlyTheHolderItNames", "ABreakDoesNotAffectTheNextHolder"}},
	{"BreakFrees", func() store.Store { return breakFrees{newSound()} },
		[]string{"ABreakAloneDoesNotFreeTheKey"}},
	{"BreakLeavesNoMark", func() store.Store { return breakLeavesNoMark{newSound()} },
		[]string{"ABreakTellsTheHolderWhy"}},
	{"BreakOnlyMarks", func() store.Store { return breakOnlyMarks{newSound()} },
		[]string{"ABreakNowFreesTheKeyAtOnce"}},
	{"MarksUnseen", func() store.Store { return marksUnseen{newSound()} },
		[]string{"AHolderThatYieldsIsShown", "AKeptKeyIsShownAsReleased"}},
	{"ContextIgnored", func() store.Store { return contextIgnored{newSound()} },
		[]string{"ACallReturnsSoonAfterItsContextEnded"}},
	{"AppliedButDenied", func() store.Store { return appliedButDenied{newSound()} },
		[]string{"AnEndedContextIsNoVerdict"}},
	{"GrantBoundToItsContext", func() store.Store { return grantBoundToItsContext{newSound()} },
		[]string{"AGrantOutlivesItsContext"}},
}, brokenLines, brokenTurns, brokenModes, brokenReaders, brokenForeign, brokenFeeds)

type broken struct {
	name   string
	new    func() store.Store
	claims []string // these must fail; others may
}
