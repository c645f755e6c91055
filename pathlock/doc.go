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
// # Storages
//
// [InMemory] is for tests and for trees of one process, [InDir] for the processes of one
// host: both keep a tree as one document, which each request of InDir reads and writes as
// a whole. [OnMongo] is for any number of processes and locks: it keeps each lock in a
// document of its own. [OnDocuments] makes a storage of one that keeps documents.
//
// # Time
//
// Only the storage's clock judges: that of Mongo's server, of the host with the files, of
// the process with the memory. A lock past its time counts for nothing from that instant,
// whether its record is still there or not: every request looks at the expiry, and no
// janitor is needed. Whoever finds the record in its way removes it.
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
// # One document a tree: compare-and-swap
//
// In memory and in files all locks of a tree are one document. Each request reads it,
// decides, and writes its change on condition that nobody wrote in between; if somebody
// did, it reads and decides again.
//
// # One document a lock: announce, look, clear, grant
//
// On MongoDB a lock is a document, found by its token, by its path, and by the paths above
// it. No command spans two documents, so a Lock proceeds in steps:
//
//  1. Announce. It inserts the lock as *pending*. A pending lock has a short life of its
//     own, about a second, after which nobody heeds it.
//  2. Look. One find reads the locks in its way: on the path, above it with depth
//     infinity and, for a request of depth infinity, below it; and nothing else. A lock
//     that was announced before this one is always seen.
//  3. Clear. If a *granted* lock conflicts, the pending one is withdrawn, and the answer is
//     the conflict. An older pending lock goes first: look again, until it is granted, gone,
//     or at the end of its life. Locks that have run out, pending ones too, and pending
//     locks that are younger are removed, each on condition that it is still as it was
//     seen. If one is not, look again.
//  4. Grant. A compare-and-swap turns the pending lock into a granted one. If somebody has
//     removed it meanwhile, the Lock starts again, under another token.
//
// A Lock that waits, and one that comes soon after another was refused, looks before it
// announces, so that it does not write if it has to be refused.
//
// Of two locks that conflict at most one is granted. Let A be the one that was inserted
// first, by the order of the database's log. B was inserted later and looked later still,
// so it saw A. It did not proceed while A was granted. If A was pending, B waited for it,
// or removed it; if it had run out, B removed it. In each case A is not granted, or not any
// more, when B is. A removal that finds A as it was seen and a grant or refresh of A are
// writes to one document: only one of them finds what it names.
//
// Which of two pending locks is older is decided by the server's clock at their insertion,
// and then by the token. Both sides compute the same from the same two documents, so
// exactly one waits. The order need not be that of the log: it decides who goes on, not
// whether both are safe. The oldest pending lock waits for nobody, so nothing can
// deadlock; and a process that dies blocks others for the short life of its pending locks,
// and the timeout of its granted ones.
//
// Whether a lock has run out is judged in one place. Its removal names the revision that
// was seen, and no date: a lock that was refreshed in between has another.
//
// Refresh, Release and Confirm are one command each. (A Refresh with the lock's own timeout,
// or of a lock with little time left, has to read it first.) Refresh uses $max, or names
// the revision: a command that comes late never shortens a lock. A token is used for one
// lock only, so a command that comes late finds that lock or none.
//
// # The outcomes of a call
//
// Granted; refused, with the locks in the way; failed and certainly not stored; or
// unknown, because the answer to the write was lost ([ErrOutcomeUnknown]). After an
// unknown outcome:
//
//   - Lock: its token, which nobody has seen, is removed in the background. On MongoDB that
//     happens in the session of the lost command, which is then refused if it comes late
//     (docs/design.md §4.1). In a document a new revision has the same effect. If the
//     removal fails too, the lock runs out after its timeout.
//   - Refresh counts as failed. It may have been applied: then the lock lasts as long as
//     was asked, which may be longer or shorter than before.
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
// and in order of time. Nobody writes when a lock runs out; so expired comes from a timer of
// the watchers: the first of them removes the lock, and that is the event for all. A
// watcher that missed events is told so ([Reset]), and then of every lock that exists.
//
// While somebody waits or watches, in any process, the tree has a *word* that says so. Then
// those who write send a notice (topic [TopicPaths]) through the storage's feed, if it has
// one; without a feed changes are found by polling, up to a second late. A notice is only a
// hint to look.
//
// The events themselves are in the storage. A document of a tree has the last [LogLength] of
// them while somebody watches. On MongoDB the records of the locks are the events: a record
// has the times of its grant and of its end by the server's clock, and while somebody
// watches the record of an ended lock stays for two minutes. Every Lock reads the word along
// with the locks in its way, so a process knows it as of a second ago at most; one that has
// not looked for a second reads it before it removes a record. That is why Watch takes a
// little over a second to begin: from then on every process keeps records for it.
package pathlock
