// Package fence makes writes that an outdated lock holder can no longer make.
//
// No lock service can stop a process that was paused past the end of its lease
// and goes on as if nothing had happened. The resource can: it remembers the
// newest token that has written and refuses older ones. Here the resource is a
// MongoDB document, and its memory is a field, _fence unless [Field] names
// another:
//
//	lease, err := client.Acquire(ctx, "nightly-report")
//	…
//	_, err = fence.UpdateOne(ctx, reports, lease.Token(),
//		bson.D{{Key: "_id", Value: "today"}},
//		bson.D{{Key: "$set", Value: bson.D{{Key: "total", Value: total}}}})
//	if errors.Is(err, fence.ErrFenced) {
//		return err // somebody with a newer token has been here: stop
//	}
//
// # How it works
//
// The filter gets one more condition, that the field holds no newer token, and
// the update sets the field to the token at hand. Both are one command, atomic in
// the server: between the look and the write nobody can come in, and a command
// that is delivered late is judged when it arrives. A document without the field,
// or with null in it, counts as older than every token. The same token may write
// any number of times. A second command is sent only after a write that matched
// nothing, to tell a newer token from a document that is not there.
//
// A write is fenced against those that came through this package with the same
// field. One that did not is not seen by it, nor held up by it; and the driver's own
// replacement of the document, or its removal, forgets the token.
//
// Tokens of different keys do not compare. All writers of a document must hold
// the same key, or each key a field of its own.
//
// # Several documents
//
// There is no UpdateMany and no bulk write: of a document that was not written
// nobody could tell whether it was fenced off or did not match. Write them one by
// one; or, where transactions are to be had, begin one with a fenced write to a
// document that stands for all of them, and use whatever of the driver's after it.
// Those whose writes begin so are fenced from each other as wholes. There is no
// delete either, as it would take the memory along: mark what is gone.
//
// # What an error means
//
// A document that is not there is no error: MatchedCount is 0, as in the driver.
//
// ErrFenced is certain: this call wrote nothing. So is an error that begins with
// "fence:" and no command was sent for it, or one that found the field to be
// something else than a token. Every other error is the driver's own, unwrapped,
// so that its labels still steer Session.WithTransaction, and it means what it
// means for the driver's call of that name: the write may have been applied, or
// may yet be, unless the error says otherwise (a duplicate key). Even then it is
// refused once a newer token has written. To repeat the call with the same token
// is as safe as the update is repeatable: $set is, $inc is not.
//
// # Write concern
//
// The collection's own is used, since these are the caller's writes. For the
// guarantee to survive a failover it must be "majority", which is the default of
// MongoDB since 5.0. With less, the write of a newer token can be rolled back by
// a failover after it was acknowledged; the field then holds the older token
// again, and an outdated holder is let in. Nothing can be said about
// unacknowledged writes, so they are reported as an error after they were sent.
//
// # Transactions
//
// The context is used as given: in a transaction's context the write is part of
// that transaction. A refused update leaves the transaction usable. A duplicate
// key aborts it, as always, and is then reported as such and not as ErrFenced. In
// a snapshot older than the newer token's write the server answers with a write
// conflict, and running the transaction again finds the newer token.
//
// # Servers
//
// The server must apply an update's filter and the update as one. FerretDB 1 does
// not, so on it nothing is fenced off from a write at the same instant; behind a
// gate that lets one command through at a time, as devmongo's, it is. It takes no
// pipelines.
package fence
