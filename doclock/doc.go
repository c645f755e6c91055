// Package doclock locks the very document that is worked on: a saga's state, an
// order, a message of an outbox. The lock lives in a field of it, so locking and
// reading are one command, and so are saving and unlocking.
//
//	doc, err := orders.Acquire(ctx, doclock.ID("order-17"))
//	…
//	defer doc.Release()
//	doc.Value.State = "paid"
//	err = doc.SaveAndRelease(ctx)
//
// Of many documents any one can be claimed, each by one worker at a time:
//
//	msg, err := outbox.Claim(ctx, bson.D{{Key: "state", Value: "new"}}, bson.D{{Key: "created", Value: 1}})
//	…
//	err = msg.Complete(ctx)
//
// What comes with a document is a *mongolock.Lease, with all that it promises:
// it is renewed in the background, it ends before anybody else can be granted the
// document, and it carries a token greater than every earlier one's. The engine is
// mongolock's; this package is a store under it (and is held to the same contract,
// by package storetest), and what follows is how that store keeps a holder in a
// document of somebody else's.
//
// # The lock
//
//	lock: {                      // or as Field names it; absent: nobody holds it, nobody ever claimed it
//	  doclock: 1,                // the version of this shape, and the mark that it is ours
//	  id, owner, note, since,    // the acquisition that holds it; absent: nobody does
//	  expireAt: Date,            // until when, unless renewed; 1970: nobody
//	  at: Date,                  // the server's clock when it was written
//	  wantedUntil: Date,         // somebody waits: whoever releases it wakes them
//	  broken: "…", released: true, stamp,
//	  saves: 2,                  // the number of the holder's last save
//	  attempts: 3,               // how often it was claimed
//	  readyAt: Date,             // requeued: not to be claimed before
//	  done: true }               // completed: never to be claimed again
//
// A document is free if it has no such field, or none that names a holder, or one
// whose holder has run out by the server's clock. Anything else in that place, null
// too, belongs to the application: such a document answers mongolock.ErrForeign and
// stays as it is. There is no TTL index, as the documents are not ours to delete: the
// lock of a holder that crashed stays where it is, and holds nobody up.
//
// # The commands
//
// Each is one findAndModify on one document. E is the expiry written, earliest what
// the server's clock has surely passed (docs/design.md §4.3, as for every lock).
//
//	acquire             {key, free at earliest}: $set id, owner, since, expireAt: E; $currentDate at; the after-image
//	  … or create       the same with upsert and $setOnInsert
//	held?               a find, or if one waits {key, a holder}: $max wantedUntil; $currentDate at
//	claim one of many   {_id, the claim's filter, free at earliest, not done, ready}: as acquire, and $inc attempts
//	renew               {_id, lock.id, alive}: $max expireAt; $currentDate at; many in one bulk and a hello
//	save                {_id, lock.id, alive, no later save}: $set and $unset of what changed, $set saves
//	save and release    {_id, lock.id, alive}: the same and $unset lock; the before-image tells who waits
//	release             {_id, lock.id}: $unset lock
//	complete, requeue   as save and release, leaving attempts with done or readyAt
//	hand over           {_id, lock.id of the old, alive}: what is saved, and id, owner, since, E of the new
//	clean up            {key, lock.id}: release, in the session of the claim
//
// Every one but acquire names the acquisition. So a late, lost or doubled command
// finds either its own lock or nothing. A late acquire is refused by its session's
// number (docs/design.md §4.1) or, where there are none, undone when it comes.
//
// # What an answer means
//
// There is no such document: [ErrNotFound]. Somebody else has it:
// *mongolock.HeldError, which says who and for how long. The lease is over, and
// nothing was written: mongolock.ErrLost. One never stands for another.
//
// A command may have been applied though its reply was lost; the error then matches
// mongolock.ErrOutcomeUnknown. Of an acquire: it is undone in the background by its
// ID (a document that it created stays, free). Of [Document.Save]: it may be
// repeated, the lock is held; and if the first one arrives after the second it
// changes nothing, as saves are numbered. Of a save and release, and of Complete,
// Remove and Requeue: it is carried through in the background, like any release,
// until it is answered or the lease has run out; until then nobody else gets the
// document, and whoever does sees what came of it. Of a hand-over inside the process:
// it is undone, and what was to be saved with it is saved with that; the one who
// waits asks once more. Of a renewal: the old deadline stands. Of an [Announce]: those
// who wait find out by themselves.
//
// # Sessions and transactions
//
// Saves take part in the session and the transaction of their context. So a save
// and release can be one of several writes that are committed together: aborted,
// the document is as it was, and still locked.
//
// Acquiring, claiming and renewing never do. A lock that is granted inside a
// transaction is one that nobody else can see until that is committed, and one that
// is gone, with the work going on, when it is aborted. Nor would there be a token:
// it is the position of the grant in the server's log, and a transaction has none
// before its commit, which comes after the work that the token should guard. So
// take the lock first, then begin the transaction.
//
// While a transaction has written the document, renewals wait for its end: keep it
// shorter than the TTL. It keeps others out by itself for as long.
//
// # One of many
//
// A claim does not search: one look ahead finds up to 1,024 candidates for all the
// workers of a process, each of whom draws one and claims it by its _id, asking
// once more for the whole filter. So a claim costs one command and a thousandth of
// another, the workers of a process never fight over a document, and every command
// names the one that it is about. Those of several processes draw from the same
// candidates: a process that misses some draws from further in, and looks again
// after a few misses; one that does not keeps the order.
//
// Waiters look every 50 ms, then less often, up to once a second, one of them for
// all; [Announce] wakes them through the collection of wake-ups beside the documents
// (their name and ".wake"), where it has a topic of its own.
//
// The server must apply an update's filter atomically. FerretDB 1 does not for
// several connections at once.
package doclock
