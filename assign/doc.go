// Package assign spreads the partitions of some work over the processes that are there.
//
//	err := assign.Run(ctx, client, "orders", 256, func(ctx context.Context, p assign.Partition) error {
//		return consume(ctx, p.ID) // ctx ends when the partition goes to another process
//	})
//
// Call Run in every process, with the same name and number. Each partition, from 0 to 255, is worked
// on by one process at a time, under a lease of package mongolock: another process has the partition
// when the function has returned, or its context has ended long enough ago, by [Grace] or by the lease's
// margin. [Partition.Token] is for resources that refuse late writers (package fence). Processes that
// come, go or die change which of them has which partition, and no more partitions move than have to.
//
//   - When ctx ends, as on SIGTERM, Run hands over one partition after the other while it works on the
//     rest, for at most [Drain]. So a rolling deploy has no time in which a partition waits for a TTL.
//   - [Prepare] loads what a partition needs before it is taken from its present process, which goes on
//     meanwhile.
//   - [Weight] gives a process more than others. A process that comes waits for [Settle] before it
//     takes partitions from others: it has those of a process that goes meanwhile, and they move once.
//   - Work that returns nil is done until its partition moves, or [Wake] says that there is more of it.
//   - [Resize] changes the number of partitions.
//   - [Look] shows which process has which partition.
//
// A process renews the leases of all its partitions together: with one bulk every third of a TTL.
//
// # How it works
//
// Each process is a worker. It holds a seat, which is a permit of the key "orders/workers", and a
// lease of "orders/0017" for each partition that it works on. It reads the
// seats when a notice says that a worker came or went, every third of a TTL, and when a seat would run
// out. From the seats, and from who has which partition, each worker computes the same plan. It waits
// in the line of each partition that it should have. A worker that has a partition which belongs to
// another by the plan gives it up once that one waits for it: it ends the work's context, waits for
// the function to return, and releases the lease to the first in line.
//
// A plan that is out of date, or two that differ, move a partition twice or late. They never let two
// workers have it, as each needs the lease. docs/internals/assign.md has the reasons, and a
// specification.
package assign
