// Package doclock locks the document that is worked on: the state of a saga, an order, a
// message of an outbox. The lock is a field of the document. So one command locks and reads it,
// and one command saves and unlocks it.
//
//	doc, err := orders.Acquire(ctx, doclock.ID("order-17"))
//	…
//	defer doc.Release()
//	doc.Value.State = "paid"
//	err = doc.SaveAndRelease(ctx)
//
// A change that is computed from the document alone takes less, and one wait for the
// majority instead of two:
//
//	err := orders.Update(ctx, doclock.ID("order-17"), func(o *Order) error { o.Total += 10; return nil })
//
// Workers can claim one of many documents; each goes to one worker at a time:
//
//	msg, err := outbox.Claim(ctx, bson.D{{Key: "state", Value: "new"}}, bson.D{{Key: "created", Value: 1}})
//	…
//	err = msg.Complete(ctx)
//
// [Locks.Work] is the loop around that, for n workers of a process: it claims, calls a function, and
// puts a message that failed back for a while. [MaxAttempts] sets aside what fails each time.
//
// [New] makes the [Locks] of a collection, one for each process. Its options are those of a client of
// package mongolock ([WithOwner], [WithLogger], [WithObserver], [With]). A document comes with a
// *mongolock.Lease and its promises: the lease is renewed in the background, it ends before the
// document can be granted again, and its token is greater than every earlier one of the document.
// Pass the lease's Context to the work.
//
// The application must leave one field of its documents alone, lock ([Field] names another), and
// change a locked document with operators such as $set, or through doc.Value: whatever replaces the
// whole document removes its lock. If locked documents have to be replaced, lock a key instead
// (package mongolock). Package doclocktest tests your code without a server.
//
// The rest of this comment is how it works. The engine is mongolock's: this package is a store
// under it, and passes the tests of package storetest as every store does.
//
// # The lock
//
//	lock: {                      // or the name given to Field; absent: no holder, never claimed
//	  doclock: 1,                // the version of this shape; marks the field as doclock's
//	  id, owner, note, since,    // the acquisition that holds the document; absent: none
//	  expireAt: Date,            // the end of its time, unless it is renewed; 1970: no holder
//	  ttl: 30000,                // how long that time is, in milliseconds
//	  beat: 1700000000000000000, // greater with every write for the holder
//	  epoch: ObjectId,           // the election of the primary whose clock expireAt goes by
//	  at: Date,                  // the server's time at the last write
//	  line: ["x:…"],             // the places of the processes that wait, in their order; absent: none waits
//	  waits: {"x:…": {…}},       // of each place: its owner, since when it waits, when it was last seen
//	  broken: "…", released: true, stamp,
//	  saves: 2,                  // the number of the holder's last save
//	  attempts: 3,               // how often the document was claimed
//	  readyAt: Date,             // requeued: not claimed before
//	  done: true,                // completed: never claimed again
//	  dead: Date }               // with done: set aside by MaxAttempts
//
// A document is free if it has no such field, or one without a holder and a line. Without a holder
// and with a line it is offered to the first in line (docs/internals/design.md §4.8), and the next passes a
// place whose process does not come. It is taken over from a
// holder that is over (docs/internals/design.md §4.3): one that has run out by the clock of the election
// that it was written under, that has shown the same beat for its whole TTL, or whose end is
// more than a minute past. Anything else in that field, null included, belongs to the
// application: the document is left unchanged, and the error is mongolock.ErrForeign. There is
// no TTL index, because it would delete the application's documents. The lock of a crashed
// holder stays in its document and no longer blocks it once the holder is over.
//
// An application that changes a locked document has to leave the field alone. Updates with $set
// and similar operators do. A command that replaces the whole document (ReplaceOne,
// findOneAndReplace, $replaceWith, the save method of many object mappers) removes the lock
// with the rest: the document is free at once, while its holder works on. The holder still
// cannot overwrite the next one's work, because each of its saves asks for the lock, and it
// learns of the loss at its next save or renewal. Only its token can stop what it does
// elsewhere meanwhile. If an application has to replace documents, let the program that does
// acquire them here and save them, or keep the lock in a collection of its own (package
// mongolock).
//
// # Names
//
// A filter names a document by its _id, or by the fields of a unique index. The engine knows a
// document under a key: the JSON of its _id, in which numbers that the server treats as equal
// have one form. A claim by other fields goes by those fields, which takes no more commands. If
// it is refused and waits, it waits under the _id of the document in its way, and a release under
// those fields tells the waiters of that _id. So all waiters for a document stand in one line,
// whatever name it was locked by.
//
// # The commands
//
// Each is one findAndModify on one document. E is the expiry that is written, with the
// holder's ttl, a new beat and the epoch. A holder is *alive* in a filter if it was neither
// broken nor released, and has not run out by the clock of its own epoch.
//
//	acquire             {key, no holder, no line}: $set id, owner, since, E; $currentDate at; the after-image
//	  … or create       the same with upsert and $setOnInsert
//	held?               a find, or of one that waits:
//	  join the line     {key, a lock, not in line, fewer than 64 there}: $push line; $set and $currentDate of waits; at
//	  … or still waits  {key, a lock, in line}: $currentDate of waits and at
//	take an offer       {key, no holder, the first in line}: as acquire; $pullAll line, $unset of waits
//	take over           {key, lock.id, lock.beat as seen, those before as seen}: the same, if the holder is over
//	leave the line      {key, in line}: $pull line, $unset of waits
//	claim one of many   {_id, no holder, the claim's filter, not done, ready}: as acquire, and $inc attempts; it heeds no line
//	  … taken over      the same, but {lock.id, lock.beat as seen} in place of no holder
//	renew               {_id, lock.id, alive, lock.beat less}: $max E; $currentDate at; many in one bulk and a hello
//	update              acquire under w: 1, sent once; then save and release
//	save                {_id, lock.id, alive, no later save}: $set and $unset of what changed, $set saves
//	save and release    {_id, lock.id, alive, no line}: the same and $unset lock
//	release             {_id, lock.id, no line}: $unset lock; many by a find, which shows who waits, and one bulk
//	  … with a line     both without that condition: $unset of the holder's fields; the after-image says who waits
//	complete, requeue   as save and release, but attempts stays, with done or readyAt
//	set aside           release, with done and dead, after a claim that was one too many
//	reopen              {a filter, done, no holder}: $unset lock; many documents with one command
//	hand over           {_id, lock.id of the old, alive}: what is saved, and id, owner, since, E of the new
//	clean up            {key, lock.id}: release, in the session of the claim
//
// Every command but acquire names the acquisition. So a late, lost or repeated command finds
// its own lock or nothing. A late acquire is refused by the transaction number of its session
// (docs/internals/design.md §4.1), or undone when it arrives if there are no such numbers.
//
// # What an error means
//
// If the document does not exist, the error is [ErrNotFound]. If it is held, the error is a
// *mongolock.HeldError, which names the holder and the time left. If the lease is over and
// nothing was written, the error matches mongolock.ErrLost. None of them stands for another.
//
// A command may have been applied although its reply was lost. The error then matches
// mongolock.ErrOutcomeUnknown, and this follows:
//
//   - Acquire: the claim is undone in the background, by its ID. A document that it
//     created stays, free.
//   - [Document.Save]: the lock is held, and the save may be repeated. Saves are numbered:
//     if the first one is applied after the second, it changes nothing.
//   - [Document.SaveAndRelease], [Claimed.Complete], [Claimed.Remove] and
//     [Claimed.Requeue]: like any release, the step goes on in the background until a
//     reply comes or the lease has run out. Until then the document is granted to no
//     other, and the next holder sees its outcome.
//   - A hand-over inside the process: it is undone, the pending save is made in the same
//     step, and the waiter asks again.
//   - A renewal: the old deadline stands.
//   - [Announce]: waiters find out by themselves.
//
// # Sessions and transactions
//
// Saves take part in the session and the transaction of their context. So a save and
// release can be one of several writes that are committed together. If the transaction
// is aborted, the document is as it was before, and still locked.
//
// Acquiring, claiming and renewing never take part. No other process could see a lock granted
// inside a transaction before the commit, and an abort would take it away while the work goes
// on. Nor would it have a token: that is the position of the grant in the server's log, and a
// transaction has no position before its commit, after the work that the token should guard. So
// take the lock first, then begin the transaction.
//
// From its first write of the document on, an open transaction keeps all other writes out, and
// renewals too. Such a document is renewed apart from the others, so that no other lease
// suffers. End the transaction in time: in the worst case two thirds of the TTL, less the
// margin, are left when it writes the document.
//
// A renewal between the first command of a transaction and its first write of the document
// makes the server refuse that write, and the transaction begins again. If it takes longer than
// a third of the TTL up to there, it may never commit. Let such a transaction begin with
// [Document.Save]: even if nothing changed, that takes the document for the transaction.
//
// # One of many
//
// A claim does not search. One look ahead finds candidates for all workers of a process: 16 at
// first, and up to 1,024 if they are used up within a second. Each worker draws one of them and
// claims it by its _id, with the whole filter once more. So a claim costs one command and at
// best a thousandth of another; workers that claim less than one document a second pay a look
// for each. The workers of a process never claim the same document, and every command names one
// document. Several processes draw from the same candidates: a process that misses some draws
// from further in, and looks again after a few misses; one that misses none keeps the order.
//
// A look also finds documents whose holder has run out by the clock at hand. It judges them by
// the rules above, with one more command at most, and leaves out those that are not known to be
// over. After an election the document of a dead worker is therefore claimed up to a TTL later
// than without one, and later still by as much as the new primary's clock is behind.
//
// Claims share a look only if their filters are equal. A filter with the present time in it is
// a different one each time: for work that is due later use [Claimed.Requeue], or let the
// server compare with its own clock ({$expr: {$lte: ["$due", "$$NOW"]}}).
//
// One waiter of a process looks for all of them: every 50 ms at first, then less often, down to
// once a second. [Announce] wakes them through the collection of wake-ups beside the documents
// (their collection's name and ".wake"). Once it waits, a claim rides out faults of the
// database. Documents with foreign content in the lock's place are passed over. Every ten
// seconds an idle process looks for one, and names it in the error of a TryClaim that found
// nothing and of a Claim whose wait ended.
//
// The server must apply the filter of an update atomically. FerretDB 1 does not if
// several connections write at once.
package doclock
