// Package pathlock locks paths of a tree for several processes: file trees, WebDAV
// servers, object prefixes, configuration trees. A lock covers one path, or a path and
// everything below it. It is shared or exclusive, lasts for a time, and is identified by
// its token.
//
//	report := pathlock.Request{Path: "/reports/2026", Mode: pathlock.Exclusive, Depth: pathlock.Infinity}
//	lock, err := tree.Lock(ctx, report)
//	if conflict, ok := errors.AsType[*pathlock.ConflictError](err); ok {
//		fmt.Println(conflict.Len(), "in the way:", conflict.Same[0].Path)
//		return
//	}
//	defer tree.Release(ctx, lock.Path, lock.Token)
//
// This comment is the protocol. A lock of this package differs from a lease of package
// mongolock: nothing renews it in the background, no context ends with it, and it
// belongs to whoever shows its token, also from another process or after a restart. It is
// for something that a client of yours holds for a while, and refreshes or not.
//
// # Paths
//
// A path is a list of segments, which are compared byte for byte. /a, a and /a/ are one
// path; / and the empty text are the root; /a has nothing to do with /ab.
//
//   - Several slashes in a row count as one: //a///b is /a/b.
//   - A segment . or .. is refused. What a/.. means depends on what a is, and only the
//     caller can know. Clean your paths first, if that is right in your tree.
//   - Nothing is decoded: /f#1, /f?1 and /f%20 are three paths.
//   - Upper and lower case differ, and so do Unicode forms. If your tree ignores case, or
//     has links, give WithAlias a function that maps each path to the one that stands
//     for it.
//   - A path is valid UTF-8 without NUL, of at most 4,096 bytes.
//
// # When two locks conflict
//
// Two locks overlap if they have the same path, or if the higher one has depth Infinity.
// They conflict if they overlap and are not both shared. The owner does not matter: a
// lock conflicts with other locks of its own owner too.
//
//	requested ↓   held →     above, 0   above, ∞   same path   below, 0   below, ∞
//	depth 0                  –          ●          ●           –          –
//	depth infinity           –          ●          ●           ●          ●
//
// where ● is overlap.
//
// After a conflict nothing is stored. The answer is a [ConflictError], which lists the
// locks in the way: above the path, on it, and below it. For a shared request these are
// the exclusive ones, for an exclusive request all that overlap.
//
// # What a lock guards
//
// Locks are advisory: [Tree.Confirm] says whether a writer with certain tokens may change
// a path. A path is covered by the locks on it, and by those above it with depth
// infinity. These are one exclusive lock, or any number of shared ones. The writer needs
// the token of one of them.
//
//   - To modify a path: if it is covered.
//   - To add to a path, that is to add or remove a member directly below it: if it
//     is covered. So a lock of depth 0 on a collection guards the list of its
//     members, but not their content.
//   - To delete a path: if its parent is covered (which loses a member), and if the path
//     or anything below it is covered. Where locks of depth infinity reach, the token of
//     one of these is needed.
//
// Confirm looks, and does not hold. If a lock may run out or be released while its holder
// writes, refresh it first, or let the resource itself check.
//
// # Time
//
// Only the storage's clock judges: that of Mongo's server, of the host with the files, of
// the process with the memory. A lock past its time counts for nothing from that instant,
// whether its record is still there or not: every request looks at the expiry, and no
// janitor is needed. The next write removes the record.
//
// The server's clock is known as an interval (docs/design.md §4.3). Its lower end decides
// that a lock has run out, its upper end when a new one will. A refresh is granted only
// while the lock has certainly not run out, and is undone if its write was applied later
// than that. So a lock that has run out is never revived.
//
//	Lock ──▶ held ──┬── Refresh: a new expiry, nothing else ──▶ held
//	                ├── Release, by its token ──▶ gone
//	                └── its time is over ──▶ gone; the token is void
//
// # One document, compare-and-swap
//
// All locks of a tree are one document. Each request reads it, decides, and writes
// its change on condition that nobody wrote in between; if somebody did, it reads and
// decides again. There is no other lock and no order of locks, so nothing can
// deadlock, and a process that dies leaves at most a lock that runs out. A
// [Storage] is that step and the clock, nothing else; package pathlocktest proves
// one.
//
// # The outcomes of a call
//
// Granted; refused, with the locks in the way; failed and certainly not stored; or
// unknown, because the answer to the write was lost ([ErrOutcomeUnknown]). After an
// unknown outcome:
//
//   - Lock: its token, which nobody has seen, is removed in the background, by a write
//     that gives the document a new revision: a late command of the first write names
//     another revision, and does nothing. If the removal fails too, the lock runs out
//     after its timeout.
//   - Refresh counts as failed. It may have been applied; then the lock lasts longer.
//   - Release: call it again. [ErrUnknownToken] then means that the first call worked.
//
// A caller's context bounds the wait for a write, and not the write: when it ends the
// call returns at once, and a lock that is granted later is released. [Tree.Close] waits
// for that.
//
// # Waiting and events
//
// [Tree.LockWait] tries again when something in the tree was released, when the first
// lock in its way runs out, and now and then. Waiters have no order.
//
// [Tree.Watch] yields what happens to the locks: added, released, expired, each once
// and in order of time. While somebody watches or waits, in any process, the document
// says so; only then do writers keep the last [LogLength] events in it and send a
// notice (topic [TopicPaths]) through the storage's feed, if it has one. Without a feed
// the events of other processes are found by polling, up to a second late. Nobody
// writes when a lock runs out; so expired comes from a timer of the watchers: the first
// of them removes the lock's record and logs the event for all. A watcher that missed
// events is told so ([Reset]), and then of every lock that exists.
package pathlock
