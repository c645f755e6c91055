// Package doclock locks the document that is worked on: the state of a saga, an order, a
// message of an outbox. The lock is a field of the document. So one command locks and reads it,
// and one command saves and unlocks it.
//
//	orders, err := doclock.New[Order](db.Collection("orders")) // one for each process
//	…
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
// The options of [New] are those of a client of package mongolock ([WithOwner], [WithLogger],
// [WithObserver], [With]). A document comes with a
// *mongolock.Lease and its promises: the lease is renewed in the background, it ends before the
// document can be granted again, and its token is greater than every earlier one of the document.
// Pass the lease's Context to the work. Package doclocktest tests your code without a server.
//
// # What to take care of
//
// The application must leave one field of its documents alone: lock, unless [Field] names another.
// Updates with $set and similar operators do, and so does a change through doc.Value. A command that
// replaces the whole document (ReplaceOne, findOneAndReplace, $replaceWith, the save method of many
// object mappers) removes the lock with the rest. The document is then free at once, while its holder
// works on. The holder cannot overwrite the next one's work, because each of its saves asks for the
// lock; it learns of the loss at its next save or renewal. If locked documents have to be replaced,
// lock a key instead (package mongolock).
//
// Anything else in that field, null included, belongs to the application: the document is left
// unchanged, and the error is mongolock.ErrForeign.
//
// A filter names a document by its _id, or by the fields of a unique index. All waiters for a document
// stand in one line, whatever name it was locked by.
//
// The server must apply the filter of an update atomically. FerretDB 1 does not if several connections
// write at once.
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
//   - [Announce]: waiters find out by themselves.
//
// # Sessions and transactions
//
// Saves take part in the session and the transaction of their context. So a save and release can be
// one of several writes that are committed together. If the transaction is aborted, the document is
// as it was before, and still locked.
//
// Acquiring, claiming and renewing never take part: take the lock first, then begin the transaction.
// End it in time, because an open transaction that has written the document keeps renewals out. In the
// worst case two thirds of the TTL, less the margin, are left when it writes the document.
//
// A renewal between the first command of a transaction and its first write of the document makes the
// server refuse that write, and the transaction begins again. If it takes longer than a third of the
// TTL to get there, it may never commit. Let such a transaction begin with [Document.Save]: even if
// nothing changed, that takes the document for the transaction.
//
// # One of many
//
// The order is that of a look at the collection, which is at most a second old, and it is strict only
// while no other process claims. Claims share a look only if their filters are equal, and a filter
// with the present time in it is a different one each time. For work that is due later use
// [Claimed.Requeue], or let the server compare with its own clock
// ({$expr: {$lte: ["$due", "$$NOW"]}}).
//
// Claims wait for new documents by polling, every 50 ms at first, then less often, down to once a second.
// [Announce] wakes them at once, through a collection beside the documents (their collection's name and
// ".wake"). Documents with foreign content in the lock's place are passed over; an idle process names one
// in its log, in the error of a TryClaim that found nothing, and of a Claim whose wait ended.
//
// The document, the commands and their reasons are in docs/internals/doclock.md.
package doclock
