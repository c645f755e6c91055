// Package store is the contract between mongolock's lease engine and a
// database. A Store does one atomic step per call and returns; timers, retries,
// queues and goroutines live in the engine. Package storetest proves an
// implementation; package memstore is the reference one.
//
// # What a store owes the engine
//
//  1. One step. Each call is atomic to every other; in a batch, each renewal by
//     itself. A reader never sees half a claim: holder and expiry appear
//     together, so no instant shows a held key without an end.
//  2. Own clock. Expiry is judged by the store's clock alone. A holder past its
//     time counts for nothing, present or not. [Grant.Left] and [Renewed.Left]
//     count from the start of the call on the caller's monotonic clock and are
//     never longer than the store will honour, drift included. The engine
//     subtracts its margin and nothing else.
//  3. Identity. Only what the [Ref] names is changed. Nothing is released,
//     renewed, broken or undone by its key alone.
//  4. An ID is claimed once. The engine never repeats one, so a store may treat
//     a second claim of an ID as its own late twin.
//  5. Tokens. If the reply of a grant came within Left, every later exclusive
//     grant of the key has a greater token: across release, expiry, removal by
//     hand and restart. Renewal does not change it.
//  6. Held. A refusal carries the [Status] seen after it. If that is free by
//     then, and not reserved, the engine asks once more. While a waiting writer's
//     word stands, new shared claims and claims of permits are held.
//  7. Renewal never creates, moves or shortens a holder. It refuses one that is
//     broken, released or, by the store's clock, expired.
//  8. Verdict or fault. [HeldError], [MismatchError], [BrokenError], [ErrGone],
//     [ErrForeign] and [ErrTooLarge] are certain: nothing was applied and nothing
//     will be. Of the other errors one that matches [ErrNotApplied] surely left no
//     trace; any other may have been applied, or may be yet.
//  9. Context. A call returns soon after its context ends, starts nothing that
//     outlives it, does not log and does not sleep.
//  10. Strangers. A record that is not of this library, or of a newer version of
//     it, answers ErrForeign and stays as it is.
//  11. Data. Strings come back byte for byte, and what is returned belongs to the
//     caller. A record near the store's size limit refuses further holders with
//     ErrTooLarge.
//  12. Feed. Watch needs no deadline. It yields an empty [Notice] once it is live
//     and after every gap. An error matching [errors.ErrUnsupported] means: never
//     ask again.
//  13. Modes. A key has any number of shared holders, or up to Limit permits, or
//     one exclusive holder. A claim of permits where others share the key, or have
//     permits with another limit, is a mismatch, and so is a shared claim where
//     others have permits; everybody waits for an exclusive holder, and it for
//     them. Holders come and go without touching each other. The last to go,
//     however it goes, takes the record along, unless a writer's word stands in it.
//     A store may do without: then such a claim answers an error that matches
//     [errors.ErrUnsupported] and ErrNotApplied.
//
// # What the engine promises a store
//
// IDs are fresh crypto/rand.Text strings. Keys are valid UTF-8 of 1 to 1,024
// bytes. Every context but Watch's and List's has a deadline, is never the caller's own
// where something is written, and carries the caller's values (a store strips
// sessions from it itself). A batch has at most 1,000 entries and names no ID
// twice; of one holder at most one renewal is under way. A grant that arrives
// after its deadline is given back. A claim whose outcome is unknown is undone,
// again and again, until that is settled or its TTL is over.
package store
