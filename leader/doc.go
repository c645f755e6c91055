// Package leader keeps one process of many in charge, and tells the others which one.
//
//	err := leader.Run(ctx, client, "billing", func(ctx context.Context, term leader.Term) error {
//		return bill(ctx) // ctx ends when this process no longer leads
//	})
//
// Call Run in every process, with the same key. It waits until this process is elected, calls the
// function, and stands again when the term was lost or resigned. It returns when ctx ends, or with
// what the function returned while this process led. The function gets a context that ends with the
// term: pass it on to everything that it calls, and return when it ends.
//
//   - [New] makes a [Candidate], which says whether this process leads (IsLeader, Term), and hands
//     over to another one (Resign).
//   - [Watch] and [Current] tell any process which one leads.
//   - [Healthy] is a liveness check: it fails if the work of a term that is over goes on.
//   - [With] gives options of the term's lease. With mongolock.TTL(10*time.Second) a leader that
//     died is replaced within ten seconds; the default is 30 s.
//
// A leader may be paused at any instruction. If two processes must never write the same thing, give
// [Term.Token] to the resource (package fence).
//
// The rest of this comment is how it works.
//
// # A term
//
// A term is a lease of package mongolock. The leader holds the key exclusively. The other
// candidates wait for it: first come, first served within a process, and woken when the key is
// free. What package mongolock promises of leases holds for terms. The context ends at least
// one margin before another process can lead. A process that was paused may act as leader after
// its term has ended; only the token, checked by the resource that is written to, stops it
// then.
//
// [Candidate.IsLeader] compares the term's deadline with this process's clock at each call. It
// is not a flag that could be out of date.
//
// # News
//
// [Watch] tells any process which one leads. A leader sends a notice on the store's feed when
// its term begins and when it ends. A leader that died sends none, so Watch also looks every 30
// s, and when the lease of the leader that it saw runs out. While there is no feed, or it
// cannot be read, Watch looks once a second as long as no process leads.
package leader
