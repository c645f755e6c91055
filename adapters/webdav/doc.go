// Package webdav makes the locks of a golang.org/x/net/webdav server last beyond its
// process, and count for all of its processes: a webdav.LockSystem on package pathlock.
//
//	locks, err := lockdav.New(storage, "files")
//	…
//	handler := &webdav.Handler{FileSystem: files, LockSystem: locks}
//
// Any number of servers with one storage and one name share the locks. A server that
// is restarted finds them as they were. The storage's clock alone says when a lock is
// over; the times that the handler passes are not looked at.
//
// # What a request costs
//
// LOCK is one edit of the tree. A request that writes and shows no token takes a lock
// of its own for as long as it lasts, as the handler of x/net has it: two edits. One that
// shows a token holds that lock fast while it writes, so that no process lets it run
// out, be refreshed, unlocked or used twice meanwhile: an edit before and after, in a tree
// of its own. (On MongoDB an edit is one read and one write.)
//
// Both are leases of half a minute that this process renews: those of one that is killed
// are over after that, and nothing else has to be cleaned up.
//
// # What the interface leaves open
//
//   - The locks that the handler takes for itself cannot be told from a client's that is
//     infinite, of depth 0 and without owner. Such a client's lock lasts as long as the
//     process that granted it.
//   - An If header's entity tags are compared if WithETag says how; without it a condition
//     with one counts as met, as in x/net's own lock system. A list with nothing but Not in
//     it is refused, as there.
//   - Shared locks the handler refuses itself. It also does not say what a request without
//     tokens is about to do: so deleting a collection is not kept back by a lock on a
//     member, nor adding to one by a lock of depth 0 on it. Ask pathlock's Confirm
//     before the handler if you need that.
package webdav
