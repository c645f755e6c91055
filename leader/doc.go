// Package leader keeps one process of many in charge, and tells the others which one.
//
//	err := leader.Run(ctx, client, "billing", func(ctx context.Context, term leader.Term) error {
//		return bill(ctx) // ctx ends when this process no longer leads
//	})
//
// A term is a lease of package mongolock. The leader holds the key exclusively. The other
// candidates wait for it: first come, first served within a process, and woken when the key is
// free. What package mongolock promises of leases holds for terms. The context ends at least
// one margin before another process can lead. A process that was paused may act as leader after
// its term has ended; only [Term.Token], checked by the resource that is written to, stops it
// then.
//
// [Candidate.IsLeader] compares the term's deadline with this process's clock at each call. It
// is not a flag that could be out of date.
//
// [Watch] tells any process which one leads. A leader sends a notice on the store's feed when
// its term begins and when it ends. A leader that died sends none, so Watch also looks every 30
// s, and when the lease of the leader that it saw runs out. While there is no feed, or it
// cannot be read, Watch looks once a second as long as no process leads.
package leader
