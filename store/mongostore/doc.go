// Package mongostore keeps locks in a MongoDB collection: one document per key. [mongolock.New]
// opens it; use it directly to wrap it, or to test a wrapper.
//
//	s, err := mongostore.New(db.Collection("locks"))
//	…
//	client, err := mongolock.NewWithStore(wrapped{s})
//
// It makes an index on the collection, unless [WithoutIndex] says otherwise, and a small capped
// collection beside it, named after it with ".wake", for the notices between waiting processes.
// [FeedOn] opens that alone. All processes that share the locks use the same collection. It has a
// document for each key that is held or waited for, and nothing for others. The store sets its own
// read and write concerns, whatever the collection's are. docs/reference.md has the rights that it
// needs.
//
// The documents and the commands are explained in docs/internals/design.md §3 and §4. commands.go has
// the commands, in the order of the table there, and store.go the loop in which claims use them.
//
// The steps that doclock shares (renewals, grants, the line, what a refusal means) belong to
// internal/mongo/lease. The collection under the library's own concerns, the session of a claim, and
// what is known of the server belong to internal/mongo/server.
//
// [mongolock.New]: https://pkg.go.dev/github.com/mongolock/mongolock#New
package mongostore
