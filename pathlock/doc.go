// Package pathlock locks paths of a tree for several processes: file trees, WebDAV
// servers, object prefixes, configuration trees. A lock covers one path, or that
// path and all that is below it; it is shared or exclusive; it lasts for a time and
// is known by its token.
//
//	tree, err := pathlock.New(pathlock.OnMongo(coll), "files")
//	…
//	lock, err := tree.Lock(ctx, pathlock.Request{
//		Path: "/reports/2026", Mode: pathlock.Exclusive, Depth: pathlock.Infinity,
//	})
//	if c, ok := errors.AsType[*pathlock.ConflictError](err); ok {
//		… // c.Parents, c.Same, c.Children: who is in the way
//	}
//
// This comment is the protocol. A lock of this package differs from a lease of
// package mongolock: nobody renews it in the background, no context ends with it,
// and it belongs to whoever shows its token, also from another process or after a
// restart. It is for what a client of yours holds for a while, and refreshes or not.
//
// # Paths
//
// A path is a list of segments, compared byte for byte. /a, a and /a/ are one path,
// / and the empty text are the root, and /a has nothing to do with /ab.
//
//   - Slashes in a row count as one: //a///b is /a/b.
//   - A segment . or .. is refused. What a/.. means depends on what a is, so nobody
//     but the caller can say. Clean your paths first, if in your tree that is right.
//   - Nothing is decoded: /f#1, /f?1 and /f%20 are paths of their own.
//   - Upper and lower case differ, and no Unicode form is made another. Where your
//     tree says otherwise, or has links, give WithAlias a function that answers
//     the one name that stands for all: it sees every path before anything else.
//   - Valid UTF-8 without NUL, at most 4,096 bytes.
//
// # When two locks conflict
//
// Two locks overlap if they have the same path, or if one of them reaches down to
// the other: the higher one has depth Infinity. They conflict if they overlap and
// are not both shared. The owner plays no part: a lock conflicts with those of its
// own owner too.
//
//	requested ↓   held →     above, 0   above, ∞   same path   below, 0   below, ∞
//	depth 0                  –          ●          ●           –          –
//	depth infinity           –          ●          ●           ●          ●
//
// where ● is overlap.
//
// On conflict nothing is stored. The answer is data, a [ConflictError] with the
// locks in the way: those above, on the same path, and below. A shared request is
// told of exclusive ones only, an exclusive one of all that overlap.
//
// # What a lock guards
//
// Locks are advice: [Tree.Confirm] says whether a writer who shows these tokens may
// change a path. A path is covered by the locks on it, and by those of depth
// infinity above it; these are one exclusive lock or any number of shared ones. The
// writer needs the token of one of them.
//
//   - To modify a path: if it is covered.
//   - To add to a path, that is to add or remove a member directly below it: if it
//     is covered. So a lock of depth 0 on a collection guards the list of its
//     members, and not what the members contain.
//   - To delete a path: if its parent is covered (it loses a member), and if the path
//     or anything below it is; where locks of depth infinity reach, of one of these.
//
// Confirm is a look, not a hold: if a lock may run out or be released while its
// holder writes, refresh it first, or let the resource itself check.
//
// # Time
//
// The storage's clock is the only judge: Mongo's server, the host whose files are
// written, the process whose memory it is. A lock past its time counts for nothing
// from that instant, whether its record is still there or not: expiry is looked at by
// every request, and no janitor takes part. The next write takes the record away.
//
// The server's clock is known as an interval (docs/design.md §4.3): its lower end
// decides that a lock has run out, its upper end when a new one will. A refresh is
// granted only while the lock has surely not run out, and is taken back if its write
// was applied later than that. So what has run out is never revived.
//
//	Lock ──▶ held ──┬── Refresh: a new timer, nothing else ──▶ held
//	                ├── Release, by its token ──▶ gone
//	                └── its time is over ──▶ gone; the token means nothing any more
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
// # What a call's outcome can be
//
// Granted; refused, with the locks that are in the way; failed and surely not
// stored; or unknown, because the write's answer was lost ([ErrOutcomeUnknown]). What
// happens then:
//
//   - Lock: the token, which nobody has seen, is taken out in the background by a
//     write that also makes the document's revision new: a late command of the first
//     one finds another revision than it asks for, and does nothing. If that
//     cannot be done either, the lock runs out by its timeout.
//   - Refresh: counts as failed. It may have been applied; the lock then lasts longer.
//   - Release: send it again; [ErrUnknownToken] then means that it had worked.
//
// A caller's context bounds his wait and not the write: when it ends he gets his
// error at once, and a lock that is granted later is released. [Tree.Close] waits
// for that.
//
// # Waiting and events
//
// [Tree.LockWait] asks again when something in the tree was released, when the first
// lock in its way runs out, and now and then. Among those who wait there is no order.
//
// [Tree.Watch] yields what happens to the locks: added, released, expired, each once
// and in order of time. While somebody watches or waits, in any process, the document
// says so; only then do writers keep the last [LogLength] events in it and send a
// notice (topic [TopicPaths]) through the storage's feed, if it has one. Without a feed
// other processes' events come by polling, up to a second late. Nobody writes
// when a lock runs out; so expired comes from a timer of the processes that listen,
// which take the lock's record away and log it, the first of them once for all.
package pathlock
