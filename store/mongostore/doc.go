// Package mongostore keeps locks in a MongoDB collection: one document per key. It is
// the store that [mongolock.New] opens; use it directly to wrap it, or to test one.
//
// It is written to docs/design.md §3 and §4, whose table its commands follow row by
// row:
//
//	mongostore.go the store, its commands
//	acquire.go    acquire, and what follows a refusal
//	together.go   acquire many at once
//	share.go      acquire and join in shared and permits mode
//	joins.go      the order of joins within this process
//	grant.go      from an applied claim to a grant: token, time left
//	transfer.go   hand over inside a process, Resume
//	renew.go      renew, one and many
//	release.go    release, MinHold's release, break
//	bulk.go       many releases at once
//	leave.go      leave in shared and permits mode; clean-up of a join
//	undo.go       clean-up after an unknown outcome
//	look.go       reads
//	memory.go     what is remembered of a lease
//	document.go   the document
//	index.go      the TTL index
//	feed.go       wake-ups
//	pool.go       whether the client has a connection to spare for them
//	wakeups.go    the collection that they go through
//
// The collection under our own concerns, the server, its clock and the session of a
// claim belong to internal/mongobase.
//
// [mongolock.New]: https://pkg.go.dev/github.com/mongolock/mongolock#New
package mongostore
