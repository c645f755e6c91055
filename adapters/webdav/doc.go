// Package webdavlock makes the locks of a golang.org/x/net/webdav server outlive its process,
// and count for several processes: it is a webdav.LockSystem on package pathlock.
//
//	import webdavlock "github.com/mongolock/mongolock/adapters/webdav"
//
//	locks, err := webdavlock.New(storage, "files")
//	…
//	handler := locks.Handler(&webdav.Handler{FileSystem: files})
//
// All servers with the same storage and name share the locks. A server that is restarted
// finds them as they were. Only the storage's clock decides when a lock has run out; the
// times that the handler passes are ignored.
//
// # What a request costs
//
// LOCK is one Lock of the tree. A request that writes and shows no token takes a lock of its
// own for as long as it lasts, as the handler of x/net does: one Lock and one Release. A
// request that shows a token marks that lock as in use while it writes, so that no process lets
// it run out, refreshes, releases or uses it meanwhile: one Lock before and one Release after,
// in a separate tree.
//
// Both last half a minute and are renewed by this process. If the process is killed they
// run out, and nothing else has to be cleaned up.
//
// # What the interface leaves open
//
//   - The handler's own locks look like a client's lock that is infinite, of depth 0 and
//     without owner. Such a lock of a client lasts as long as the process that granted it.
//   - Entity tags of an If header are compared if WithETag says how. Without it a condition
//     with an entity tag counts as met, as in x/net's own lock system. A list with only Not
//     conditions is refused, as there.
//   - The handler itself refuses shared locks. It also does not tell what a request without
//     tokens is about to do. So a lock on a member does not prevent its collection from being
//     deleted, and a lock of depth 0 on a collection does not prevent that a member is added.
//     If you need that, call pathlock's Confirm before the handler.
package webdavlock
