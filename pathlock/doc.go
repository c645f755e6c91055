// Package pathlock locks paths of a tree for several processes: file trees, WebDAV
// servers, object prefixes, configuration trees. A lock covers one path, or a path and
// everything below it. It is shared or exclusive, lasts for a time, and is identified by
// its token. On MongoDB a tree is New(storage, "files"), once for each process, where storage is
// OnMongo(collection).
//
//	err := tree.Do(ctx, pathlock.Request{Path: "/reports/2026"}, func(ctx context.Context, h *pathlock.Hold) error {
//		return write(ctx, h.Lock.Path) // ctx ends when the path is not held any more
//	})
//	if err != nil {
//		fmt.Println(err)
//	}
//
// Do waits while other locks conflict, and refreshes its lock until the function returns. TryDo does
// not wait. [Tree.Hold] and [Tree.TryHold] return the [Hold] instead, with Err, Done, Context and
// Release, as a lease of package mongolock has them.
//
// A client of yours, such as an editor or a WebDAV client, refreshes its own lock, or does not:
//
//	report := pathlock.Request{Path: "/reports/2026", Timeouts: []time.Duration{10 * time.Minute}}
//	lock, err := tree.Lock(ctx, report)
//	var conflict *pathlock.ConflictError
//	if errors.As(err, &conflict) {
//		fmt.Println(conflict.Len(), "in the way:", conflict.Same[0].Path)
//		return
//	}
//	defer tree.Release(ctx, lock.Token)
//
// Nothing refreshes such a lock in the background, no context ends with it, and any caller that shows
// its token may use it, also from another process or after a restart.
//
// # Paths
//
// A path is a list of segments, which are compared byte for byte. /a, a and /a/ are one
// path; / and the empty text are the root; /a has nothing to do with /ab.
//
//   - Several slashes in a row count as one: //a///b is /a/b.
//   - A segment . or .. is refused. The meaning of a/.. depends on what a is, and only the
//     caller can know that. Clean your paths first, if that is right in your tree.
//   - Nothing is decoded: /f#1, /f?1 and /f%20 are three paths.
//   - Upper and lower case differ, and so do Unicode forms. If your tree ignores case, or
//     has links, give WithAlias a function that maps each path to the one that stands
//     for it.
//   - A path is valid UTF-8 without NUL, of at most 4,096 bytes.
//
// # When two locks conflict
//
// Two locks overlap if they have the same path, or if one is above the other and has depth
// Infinity. They conflict if they overlap and are not both shared. The owner does not matter: a
// lock conflicts with other locks of its own owner too.
//
//	requested ↓   held →     above, 0   above, ∞   same path   below, 0   below, ∞
//	depth 0                  –          ●          ●           –          –
//	depth infinity           –          ●          ●           ●          ●
//
// where ● is overlap.
//
// After a conflict nothing is stored. The answer is a [ConflictError], which lists the locks in
// the way: above the path, on it, and below it. For a shared request these are the exclusive
// locks, for an exclusive request all that overlap. The lists have every lock that stood when the
// request came, or More says that they do not.
//
// # What a lock guards
//
// Locks are advisory: [Tree.Confirm] says whether a writer with certain tokens may change a
// path. A path is covered by the locks on it, and by the locks above it with depth infinity.
// That is one exclusive lock, or any number of shared ones. The writer needs the token of one
// of them.
//
//   - To modify a path: if it is covered.
//   - To add to a path, that is to add or remove a member directly below it: if it
//     is covered. So a lock of depth 0 on a collection guards the list of its
//     members, but not their content.
//   - To delete a path: if its parent is covered (which loses a member), and if the path
//     or anything below it is covered. Where locks of depth infinity reach, the token of
//     one of these is needed.
//
// Confirm only reads: it does not hold the locks. If a lock may run out or be released while
// its holder writes, refresh it first, or let the resource itself check.
//
// # Storages
//
// [InMemory] is for tests and for trees of one process, [InDir] for the processes of one
// host: both keep a tree as one document. A request in memory takes microseconds, however many
// locks there are. A request of InDir reads and writes the whole tree, so it suits small ones.
// [OnMongo] is for any number of processes and locks: it keeps each lock in a document of its own.
//
// Only the storage's clock decides when a lock is over: that of MongoDB's server, of the host with
// the files, or of the process with the memory. A lock past its time counts for nothing from that
// instant, and a refresh never revives it. After an election, the lock of a process that died may
// count for longer: up to its timeout, or for a minute.
//
// # The outcomes of a call
//
// A call is granted; or refused, with the locks in the way; or it failed and certainly stored
// nothing; or its outcome is unknown, because the answer to the write was lost
// ([ErrOutcomeUnknown]). After an unknown outcome:
//
//   - Lock: its token, which no caller has seen, is removed in the background. If that fails
//     too, the lock runs out after its timeout.
//   - Refresh: it counts as failed. If it was applied, the lock lasts as long as was asked,
//     which may be longer or shorter than before.
//   - Release: call it again. [ErrUnknownToken] then means that the first call worked.
//
// A caller's context limits how long the call waits for a write, but not the write. When it
// ends the call returns at once, and a lock that is granted later is released. [Tree.Close]
// waits for that.
//
// # Waiting
//
// [Tree.LockWait] tries again when a lock in the tree was released, when the first lock in its
// way runs out, and now and then. Waiters have no order. But shared locks that come and go do not
// keep an exclusive waiter out: while it waits, new shared locks that overlap its path are refused,
// or wait ([ConflictError.Waiting]). A waiter that died keeps shared locks out for 30 s at most. A
// caller that has a shared lock, and asks for one more that overlaps it, waits behind such a waiter,
// which waits for the first one: take one lock that covers both.
//
// The protocol is explained in docs/internals/pathlock.md.
package pathlock
