// Package keep keeps one key between its uses in this process: for a short critical section that one
// process enters again and again, and others seldom.
//
//	index, err := keep.New(client, "index", 10*time.Second)
//	...
//	err = index.Do(ctx, func(ctx context.Context, _ *mongolock.Lease) error {
//		return update(ctx) // ctx ends when the lease does
//	})
//	...
//	err = index.Close()
//
// The first use acquires the key. The uses after it have the same lease, one at a time, in the order in
// which they came: they cost no command. The lease is renewed meanwhile. It is given up
//
//   - when another caller waits for the key, in another process or at the same client. The use under way
//     ends first. Uses that wait here come after that caller, in the line of the key;
//   - after a time without a use, which [New] is given;
//   - between two uses, a minute after its grant, even if nothing was heard of waiters;
//   - when it is lost, and at [Key.Close].
//
// So a process that keeps a key delays a waiter elsewhere by the use under way and a handoff. A waiter
// is heard of by wake-ups. A client that hears none (WithoutFeed, a store without a feed) learns of it by a
// renewal, or when the minute or the time without a use is over. If the process dies others wait for the
// TTL, as for any holder. A refused TryAcquire does not wait: no key is given up for it.
//
// Of the uses that wait here, the first alone stands in the line of the key. If its context ends, the next
// one joins at the end. So give a use more time than others need who stand in line: uses that all give up
// before are never served, while callers of Acquire keep their client's place for each other.
//
// # What a token is worth
//
// All uses of one lease have the same fencing token: it tells leases apart, not uses. A write of this
// process that comes too late is refused once another process has had the key. It is not refused because
// a later use of the same lease has begun. So a use must not leave work behind: wait for it before fn returns, or
// do it under ctx, which ends with the use.
package keep
