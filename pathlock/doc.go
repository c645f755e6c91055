// Package pathlock locks paths of a tree for several processes: file trees, WebDAV
// servers, object prefixes, configuration trees. A lock covers one path, or a path and
// everything below it. It is shared or exclusive, lasts for a time, and is identified by
// its token.
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
// The rest of this comment is the protocol.
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
// host: both keep a tree as one document, in memory as a trie. A request in memory takes
// microseconds, however many locks there are; one of InDir reads and writes the whole tree,
// so it suits small ones. [OnMongo] is for any number of processes and locks: it keeps each
// lock in a document of its own.
//
// # Time
//
// Only the storage's clock judges: that of Mongo's server, of the host with the files (a clock that
// cannot be set), of the process with the memory. A lock past its time counts for nothing from that instant, whether
// or not its record is still there: every request checks the expiry. No janitor is needed,
// because a request that finds such a record in its way removes it. After an election of
// another primary, whose clock may differ, a lock that was not written since then may count for
// longer: "When a lock is over" has the rule.
//
// The server's clock is known as an interval (docs/internals/design.md §4.3). Its lower end decides that
// a lock has run out, its upper end when a new one will. A refresh is granted only while the
// lock has certainly not run out, and is undone if its write was applied later than that. So a
// refresh that its caller was told of never revives a lock that has run out. The undo removes
// what that refresh wrote, and nothing that was written since: another refresh, by a caller
// that has the token too, may have found the lock and been granted. The path was granted to no
// other lock in between, because the record was there all the time.
//
//	Lock ──▶ held ──┬── Refresh: a new expiry, nothing else ──▶ held
//	                ├── Release, by its token ──▶ gone
//	                └── its time is over ──▶ gone; the token is void
//
// # One document a tree: compare-and-swap
//
// In memory and in files all locks of a tree are one document. Each request reads it, decides,
// and writes its change on condition that the document has not changed meanwhile. If it has
// changed, the request reads and decides again.
//
// # One document a lock: add, look, keep or withdraw
//
// On MongoDB a lock is a document, found by its token, by its path, and by the paths above
// it. No command spans two documents, so a Lock proceeds in steps:
//
//  1. Add. It inserts the lock as it is meant to stay, and waits until a majority has it.
//  2. Look. One find reads the locks in its way: on the path, above it with depth
//     infinity and, for a request of depth infinity, below it; and nothing else. It reads
//     what a majority has. It has to see the new lock itself, and when the server added it.
//  3. Clear. Locks in the way that are over are removed, each on condition that it has not
//     changed since it was seen, and until a majority knows of that. If one has changed,
//     look again.
//  4. Keep or withdraw. If nothing else is in the way, the lock is granted. Otherwise it is
//     removed again, and the answer is the conflict.
//
// A Lock that waits, and one that comes soon after another was refused, looks before it adds,
// so that it does not write if it has to be refused.
//
// Of two locks that conflict at most one is granted. Let A be the one that comes first in the
// database's log. The look of B was answered by a member that shows B, so that member has
// everything that the log has before B, A included. It shows A, unless the removal of A is
// known to a majority; and then A is gone for good. If it shows A, B is not granted before it
// has removed A, which it does only if A is over. A refresh of A and a removal that names what
// was seen of A are writes to one document: only one of them finds what it names. In each case
// A is not held, or no longer held, when B is granted. (docs/internals/spec/Path.tla says this section
// once more, and a model checker tries every order of few steps.)
//
// If two locks are added at once, these steps alone may withdraw both. So a lock is in doubt at
// first, for as long as a few commands take (10 ms to 2 s), because its Lock may not have
// looked yet. No request is refused because of a lock in doubt. A request that is refused because of
// others, and does not wait, looks again until it knows about those that were in doubt, and then lists them. Of two that see each other in
// doubt, the one that was added later, by the server's clock and then by its token, is
// withdrawn and looks again until the other is decided. The earlier one waits until the later
// one is gone. Both compute the same order from the same two documents. Doubt decides only
// which of the two goes on, not whether both are safe: a request that mistakes a lock in doubt
// for a granted one is refused without need, and nothing worse happens. A process that dies
// between its steps leaves a lock that lasts for its timeout, like a process that dies while it
// holds the lock: the two could be told apart only by one more write for each Lock.
//
// # When a lock is over
//
// Dates of two primaries are never compared. A lock is over, so that a rival may remove it, in
// three cases: it was last written under the election that is still going on, and its time is
// past by that primary's clock; or the rival has seen its document unchanged for its whole
// timeout, by the rival's own clock; or its time is past by more than a minute, by any clock.
// docs/internals/design.md §4.3 has the argument. The removal names the revision that was seen, and no
// date. A lock counts until it is known to be over, and a ConflictError shows as its end when
// that will be known.
//
// A Refresh or a Release judges by a date only if it was written under the election that
// goes on. After an election they go by the document: while it is there, no conflicting lock
// was granted.
//
// Refresh, Release and Confirm are one command each. (A Refresh with the lock's own timeout,
// of a lock with little time left, or of one that was written under another election has to
// read it first.) Refresh uses $max, or names the revision: a command that comes late never
// shortens a lock. A token is used for one lock only, so a command that comes late finds
// that lock or none.
//
// # The outcomes of a call
//
// A call is granted; or refused, with the locks in the way; or it failed and certainly stored
// nothing; or its outcome is unknown, because the answer to the write was lost
// ([ErrOutcomeUnknown]). After an unknown outcome:
//
//   - Lock: its token, which no caller has seen, is removed in the background. On MongoDB
//     that happens in the session of the lost command, which is then refused if it comes late,
//     unless a primary failed in between (docs/internals/design.md §4.1). In a tree that is one document
//     a new revision has the same effect. If the removal fails too, the lock runs out after
//     its timeout.
//   - Refresh: it counts as failed. It may have been applied. Then the lock lasts as long as
//     was asked, which may be longer or shorter than before. It does not undo a later Refresh
//     that was called after its own caller had left.
//   - Release: call it again. [ErrUnknownToken] then means that the first call worked.
//
// A caller's context limits how long the call waits for a write, but not the write: when it
// ends the call returns at once, and a lock that is granted later is released. [Tree.Close]
// waits for that.
//
// # Waiting and events
//
// [Tree.LockWait] tries again when a lock in the tree was released, when the first lock in its
// way runs out, and now and then. Waiters have no order.
//
// Shared locks that come and go do not keep an exclusive waiter out: it is served as soon as the locks
// that it found are gone. When a shared lock is in its way, it writes a *reservation* into the tree:
// its path, its depth and an end, 30 s ahead. While that stands, new shared locks that overlap it are
// refused, or wait ([ConflictError.Waiting]); those that exist may be refreshed. The waiter writes it
// again for as long as it waits, and removes it when it is served or gives up. So a waiter that died
// keeps shared locks out for 30 s at most. A caller that has a shared lock, and asks for one more that
// overlaps it, waits behind such a waiter, which waits for the first one: take one lock that
// covers both. A tree has at most 64 reservations; further waiters write theirs when others are
// gone. No safety depends on them.
//
// [Tree.Watch] yields what happens to the locks: added, released, expired, each once and in
// order of time. No write marks the moment when a lock runs out, so the expired event comes
// from the watchers' timers: the first watcher removes the lock, and that is the event for all.
// A watcher that missed events is told so ([Reset]), and then of every lock that exists.
//
// While a caller waits or watches, in any process, the tree has a *word* that says so. Then
// processes that write send a notice (topic "paths") through the storage's feed, if it has
// one. Without a feed changes are found by polling, up to a second late. A notice is only a
// hint to look.
//
// The events themselves are in the storage. If a tree is one document, that has the last
// 64 of them while the tree is watched. On MongoDB the records of the locks are the
// events. While the tree is watched, a record has the times of its grant and of its end by the
// server's clock, which is one command more for a Lock, and the record of an ended lock stays
// for two minutes. A find is no snapshot: it may miss a release and see the lock that was
// granted after it. So a watcher that finds something looks twice before it reports. After an
// election the times are by another clock, so watchers are reset. A
// watcher that has not noticed the election yet may be told of one event twice, if the new
// primary's clock is seconds off: it reads by time, and forgets after five seconds what it
// told. The Reset follows, and no lock depends on events. Every Lock reads the word along with
// the locks in its way, so a process knows the word as it was at most a second ago; a process
// that has not looked for a second reads it before it removes a record. That is why Watch takes
// a little over a second to begin: from then on every process keeps records for it.
package pathlock
