// Package store is the contract between mongolock's lease engine and a database. Implement
// [Store] to keep locks where the library cannot, and give it to mongolock.NewWithStore:
//
//	client, err := mongolock.NewWithStore(mystore.New())
//
// A Store does one atomic step per call and returns. Timers, retries, queues and goroutines belong
// to the engine. Package record has the rules of a key for a store that changes a key's record as a
// whole (docs/internals/stores.md), and package storetest proves an implementation.
// A store that is also a [Feed] tells waiters that a key is free; that is optional. A wrapper's feed
// is found by its method Unwrap() store.Store.
//
// This package uses three terms. The record of a key is the data that a store keeps under it. Its
// line has the places of those who wait (Claim.Place), first come, first served. A writer claims
// a key in mode Exclusive; a sharer claims it in mode Shared or Permits.
//
// # What a store owes the engine
//
//  1. One step. Each call is atomic to every other; in a batch, each renewal by
//     itself. Holder and expiry appear together, so a held key has an end at every instant.
//  2. Own clock. Only the store's clock judges expiry. A holder past its end counts
//     for nothing, even if the record still has it. A store whose clock may not be
//     that of the last write may take longer to be sure, never less, and says
//     until when ([Holder].KnownBy). [Grant.Left] and [Renewed.Left] count from the
//     start of the call on the caller's monotonic clock. The store honours them in
//     full, drift included: the engine subtracts its margin and nothing else.
//  3. Identity. Only what the [Ref] names is changed. Nothing is released,
//     renewed, broken or undone by its key alone.
//  4. An ID is claimed once. The engine never repeats one, so a store may treat
//     a second claim of an ID as a late copy of the first.
//  5. Tokens. If the reply of a grant came within Left, every later exclusive
//     grant of the key has a greater token: across release, expiry, removal by
//     hand and restart. Renewal does not change a token.
//  6. Held. A refusal carries the [Status] seen after it, with the claim's place in line,
//     unless the line was full. If that Status shows that it is the claim's turn, the engine
//     asks once more.
//  7. Renewal never creates, moves or shortens a holder. It refuses a holder that
//     is broken, released or, by the store's clock, expired. While a store cannot
//     tell whether a holder has expired, it may treat it as live, if the key was
//     not granted to another.
//  8. Verdict or fault. [HeldError], [MismatchError], [BrokenError], [ErrGone],
//     [ErrForeign] and [ErrTooLarge] are verdicts ([IsVerdict]): nothing was applied
//     and nothing will be. Of the other errors, one that matches [ErrNotApplied]
//     left no trace ([IsCertain]), but for a place in line if it matches [ErrPlaceUnknown];
//     any other call may have been applied, or may be applied later.
//  9. Context. A call returns soon after its context ends, starts nothing that
//     outlives it, does not log and does not sleep.
//  10. Foreign records. A record that is not of this library, or of a newer version of
//     it, answers ErrForeign and stays as it is.
//  11. Data. Strings come back byte for byte, and what is returned belongs to the
//     caller. A record near the store's size limit refuses further holders with
//     ErrTooLarge.
//  12. Feed. Watch needs no deadline. It yields an empty [Notice] once it is live
//     and after every gap. An error matching [errors.ErrUnsupported] means: never
//     ask again.
//  13. Modes. A key has any number of shared holders, or holders of permits, each of
//     as many as its claim's Weight says, or one exclusive holder. A claim of permits
//     is judged by its own Limit: it is granted if what the live holders have taken
//     and its own Weight are at most that, whatever the Limits of their claims were.
//     A claim of permits is a mismatch if others share the key, and a shared claim if
//     others have permits. Claims of every mode wait for an exclusive
//     holder, and an exclusive claim waits for holders of every mode. Sharers come and go without
//     touching each other. The last of them to go, however it goes, removes the
//     record, unless waiters stand in line. A store may support
//     Exclusive alone: then other claims answer an error that matches
//     [errors.ErrUnsupported] and ErrNotApplied.
//  14. Releases. The engine asks again about a release of unknown outcome: the holder is gone by
//     then if the first was applied, which the store answers with ErrGone. Many are asked for side
//     by side, some of them of one key.
//  15. Line. A place stands in the line from a refused claim until a grant to it, Leave, a grant
//     that passes it, or until long after it is stale. Who joins comes last, and who was passed
//     before those that came later. A record that stays says when a holder last left it, and for
//     how long that one had it. A key is granted only
//     in its turn ([Status].Turn): compared and swapped in the step of the grant, so that no
//     place is passed that was not judged. A record that loses its last holder stays for its line, with
//     no holders. The line only says who asks when: a place that is lost, or stays too long, costs
//     time, never safety.
//
// # What the engine promises a store
//
// A claim of permits has a Limit of at least 1 and a Weight of at most that.
// IDs are fresh crypto/rand.Text strings. Keys are valid UTF-8 of 1 to 1,024 bytes. Every context
// has a deadline, except those of Watch and List. A call that writes never gets the caller's own
// context, but one that carries the caller's values (a store strips driver sessions from it
// itself). A batch of renewals has at most 1,000 entries and names no ID twice; a holder has at
// most one release under way, but may have several renewals, of which the last may be applied first. A grant that arrives after its deadline is
// given back. A claim whose outcome is unknown is undone: Undo is repeated until it settles or the
// TTL is over, one call at a time. Break removes a holder only after a Break has marked it.
package store
