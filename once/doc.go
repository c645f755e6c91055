// Package once runs a function that must run once, ever, on however many processes start
// together: a migration, a set-up, an import. One process runs it, the others wait and see
// how it ended, and the record of that stays.
//
//	err := once.Do(ctx, db.Collection("once"), "add-index-on-orders", func(ctx context.Context, run once.Run) error {
//		return migrate(ctx) // ctx ends when the lease does
//	})
//
// This comment is the protocol. There is a document for each name, and package doclock
// locks it: so the lock and the record are one document, the rules by which a dead runner
// is taken over are those of every lease (docs/design.md §4.3), and no command of this
// package is new.
//
// # What once means
//
// The record is written exactly once. "Done" is written on condition that the runner's lease
// is in the document, which has one lease at a time, and nobody begins a run of what is
// done. So a runner whose lease is over records nothing, and one runner at most records that
// it is done.
//
// The function runs at least once. A runner may die, or lose its lease, after the work and
// before the record; nobody can tell that from a runner that died before the work, so the
// function runs again. It does not run again once the record says that it is done, and it
// runs in one process at a time. It can make itself safe to run again in one of these ways:
//
//   - It looks before it does something, or does what makes no difference the second time:
//     an upsert, an index, a row with a key of its own.
//   - It gives [Run.Token] to what it writes to, and that refuses older tokens (package
//     fence). A runner that was paused, and goes on when another has taken over, then
//     writes nothing.
//   - It does its work in one transaction, begun with a fenced write.
//
// [Run.Number] is 1 in the first run of all. In a later one it is greater, and an earlier
// run may have done a part of the work.
//
// # How a run ends
//
//	          granted, nobody did it yet      fn returned nil
//	Do ── look ──▶ lock ───────▶ RUNNING ──────────────────────▶ DONE     for ever, until Reset
//	 │               ▲              │ fn returned an error
//	 │ done: return  │ wait         ├──────────────────────────▶ FAILED   the next call runs it again
//	 ▼               │              │ fn stopped because ctx ended
//	               held             ├──────────────────────────▶ STOPPED  a waiter runs it again
//	                                │ the process died, or its lease was lost
//	                                └──────────────────────────▶ DIED     a waiter runs it again
//
// A call that waited while another process ran the function, and saw it fail, returns that
// failure as a [FailedError]: otherwise each of n processes would in turn repeat what has
// just failed. "While it waited" is told by the numbers of the runs, and by no clock. A call
// that begins after the failure runs the function again.
//
// A run that died is known by this: its entry says that it runs, and its lock is gone or
// over. The next runner writes that down.
//
// # The commands
//
//	look              find {_id}, of what a majority has
//	lock              doclock's AcquireOrCreate of {_id, once: 1}; a waiter also looks, up to once a second
//	begin             doclock's save: the entry of this run
//	end               doclock's save: how it ended
//	release           doclock's release
//
// A call that finds the work done sends one find and nothing else. The first runner sends
// the look, what a doclock claim sends, the beginning, the end and the release. All writes
// but the release are known to a majority before they count, and the look shows only what a majority has: what is seen
// to be done is not rolled back.
//
// Any reply may be lost. What happens then:
//
//   - Look: nothing was changed. The first look fails the call; a waiter looks again.
//   - Lock: doclock undoes the claim by its ID. A document that it made stays, with no run in it.
//   - Begin: is sent again, for as long as the lease lasts. The function has not been
//     called. If the process gives up the entry may stay, and counts as a run that died.
//   - End: is sent again, for as long as the lease lasts; saves are numbered, so the first
//     changes nothing if it comes after the second. Then Do looks at the record. If that does
//     not show the end the error matches [ErrUnrecorded], and mongolock.ErrLost or
//     ErrOutcomeUnknown: the work was done, and may be done again.
//   - Release: is sent again in the background, as every release. Do has returned.
//
// # The checksum
//
// [Content] is what is run: the text of a migration, say. Its checksum is in the record. A
// call with other content than that which is done returns a [ChangedError], and runs nothing. A run
// that failed or died may be repeated with other content: that is how it is mended. Without
// Content, here or in the record, nothing is compared.
package once
