// Package once runs a function that must run once, ever, however many processes start together:
// a migration, a set-up, an import. One process runs it. The others wait and see how it ended.
// The record of the run stays.
//
//	err := once.Do(ctx, db.Collection("once"), "add-index-on-orders", func(ctx context.Context, run once.Run) error {
//		return migrate(ctx) // ctx ends when the lease does
//	})
//
// Call [Do] wherever the work may have to be done, such as at the start of each pod, and go on when it
// returns nil: then the work is done, here or in another process, now or earlier. It returns the
// function's error if that failed here, and a [FailedError] if it failed elsewhere while this call
// waited. [TryDo] does not wait.
//
//   - If a process dies before the record is written, the function runs again. So it must be safe
//     to repeat: see "What once means".
//   - New work gets a new name. [Content] notices work that was changed under its old one.
//   - [WithOwner], [WithLogger], [WithObserver] and [With] are as in package mongolock. With
//     mongolock.TTL, a process that died is replaced sooner than after 30 s; MaxWait bounds the wait.
//   - [Look] and [List] show the records: each run, by which process, how long, and its [Outcome].
//     [Reset] makes the next call run the function again. So does mongolock once --again.
//
// Keep the records in a collection of their own.
//
// # What once means
//
// The record is written exactly once: at most one runner records that the work is done, and no
// process begins a run of work that is done.
//
// The function runs at least once. A runner may die, or lose its lease, after the work and before
// the record. That cannot be told from a runner that died before the work, so the function runs
// again. It runs in one process at a time. It can make itself safe to run again in one of these ways:
//
//   - It looks before it does something, or does only things that make no difference the
//     second time: an upsert, an index, a row with a key of its own.
//   - It gives [Run.Token] to the resource that it writes to, which refuses older tokens
//     (package fence). A runner that was paused, and goes on when another has taken over,
//     then writes nothing.
//   - It does its work in one transaction, begun with a fenced write.
//
// [Run.Number] is 1 in the very first run. In a later run it is greater, and an earlier run may
// have done a part of the work.
//
// # How a run ends
//
//	          granted, not done yet           fn returned nil
//	Do ── look ──▶ lock ───────▶ RUNNING ──────────────────────▶ DONE     for ever, until Reset
//	 │               ▲              │ fn returned an error, or panicked
//	 │ done: return  │ wait         ├──────────────────────────▶ FAILED   the next call runs it again
//	 ▼               │              │ fn stopped because ctx ended
//	               held             ├──────────────────────────▶ STOPPED  a waiter runs it again
//	                                │ the process died, or its lease was lost
//	                                └──────────────────────────▶ DIED     a waiter runs it again
//
// A call that waited while the function failed in another process returns a [FailedError]. A call
// that begins after the failure runs the function again. If the end of a run could not be recorded,
// the error matches [ErrUnrecorded]: the work was done, and may be done again.
//
// # The checksum
//
// [Content] names the content that is run, such as the text of a migration. Its checksum is in
// the record. If the work was done with other content than the call has, the call returns a
// [ChangedError], and runs nothing. A run that failed or died may be repeated with other content.
// Without Content, in the call or in the record, nothing is compared.
//
// The commands are explained in docs/internals/once.md.
package once
