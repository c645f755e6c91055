// Package fence makes writes to MongoDB that an outdated lock holder can no longer make.
//
//	lease, err := client.Acquire(ctx, "nightly-report")
//	…
//	_, err = fence.UpdateOne(ctx, reports, lease.Token(),
//		bson.D{{Key: "_id", Value: "today"}},
//		bson.D{{Key: "$set", Value: bson.D{{Key: "total", Value: total}}}})
//	if errors.Is(err, fence.ErrFenced) {
//		return err // a newer token has written: stop
//	}
//
// A lock service cannot stop a process that was paused past the end of its lease and
// then goes on as if nothing had happened. The resource can: it remembers the newest
// fencing token that has written and refuses older ones. Here the resource is a
// MongoDB document, and it keeps the token in a field: _fence, unless [Field] names
// another.
//
//   - [UpdateOne], [UpdateByID], [ReplaceOne] and [InsertOne] are the driver's calls, with the token
//     of a lease, a term or a run before the filter. Their options are those of the driver
//     ([UpdateOptions], [ReplaceOptions], [InsertOptions]), and [Upsert].
//   - Let all writers of a document use this package, with the same field, and hold the same key:
//     tokens of different keys cannot be compared. A write that does not come through this package is
//     not checked, and the driver's own replacement or deletion of the document removes the token.
//   - Write with "majority", the default of MongoDB since 5.0.
//   - What is stored is what the driver would have stored, and the token. One thing cannot be had: an
//     encoder that the client's registry has for the type of the whole document is passed by. Those for
//     the types of its fields are used.
//   - To fence several documents, begin a transaction with a fenced write.
//
// # How it works
//
// The filter gets one more condition: the field holds no newer token. The update sets
// the field to the caller's token. Both are one command, and the server applies it
// atomically, so no other write can come between the check and the write. A command
// that is delivered late is judged when it arrives. A document without the field, or
// with null in it, counts as older than every token. The same token may write any
// number of times. Only a write that matched nothing costs a second command, which
// tells a newer token from a missing document.
//
// # Several documents
//
// There is no UpdateMany and no bulk write: for a document that was not written they
// could not tell whether it was fenced off or did not match. Write the documents one
// by one. Where the server has transactions, you can also begin one with a fenced
// write to a document that stands for all of them and exists, and use any call of the driver
// after it: transactions that begin so are fenced from each other as wholes. There is
// no delete either, because it would delete the token too: mark a document as deleted
// instead.
//
// # What an error means
//
// A missing document is no error: MatchedCount is 0, as in the driver.
//
// ErrFenced is certain: this call wrote nothing. An error that begins with "fence:"
// is certain too, if the call sent no command or found something in the field that is
// not a token. (The report of an unacknowledged write also begins so; its text says
// that the write was sent.) Every other error is the driver's own, unwrapped, so that
// its labels still steer Session.WithTransaction. The write may then have been applied,
// or may yet be, unless the error says otherwise (a duplicate key). Even such a write is
// refused once a newer token has written. Whether it is safe to repeat the call with the
// same token depends on the update: $set can be repeated, $inc cannot.
//
// # Write concern
//
// The collection's own write concern is used, because these are the caller's writes.
// With less than "majority", a failover can roll back the write of a newer token after
// it was acknowledged. The field then holds the older token again, and an outdated
// holder can write. The outcome of an unacknowledged write is not known, so the call
// returns an error after sending it.
//
// # Transactions
//
// The context is used as given: in a transaction's context the write is part of that
// transaction. One that changes nothing takes the document for the transaction too, with
// two more commands. A refused update leaves the transaction usable. A duplicate key aborts
// the transaction, as always, and is then reported as a duplicate key and not as
// ErrFenced. In a snapshot older than the newer token's write the server answers with
// a write conflict; running the transaction again finds the newer token.
//
// # Servers
//
// The server must apply an update's filter and the update as one step. FerretDB 1 does
// not, so on it a write at the same instant is not fenced off, unless a gate lets one
// command through at a time, as that of devmongo does. FerretDB 1 has no pipeline
// updates.
package fence
