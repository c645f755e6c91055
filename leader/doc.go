// Package leader keeps one process of many in charge, and lets the others know
// which.
//
//	err := leader.Run(ctx, client, "billing", func(ctx context.Context, term leader.Term) error {
//		return bill(ctx) // while this process leads; ctx ends when it does not any more
//	})
//
// A term of office is a lease of package mongolock: the leader holds the key, the
// others wait for it, first come first served within a process, woken when it is
// free. All that is said there of leases holds for terms: the context ends at least
// one margin before another can lead, a process that was paused may not know yet,
// and only [Term.Token], checked by what is written to, stops it then.
//
// [Candidate.IsLeader] compares with the term's deadline on this process's clock each
// time it is asked. It is never a flag that somebody forgot to take down.
//
// Who leads, [Watch] tells anybody: at the notices that leaders send on the feed,
// under a topic of their own, when they take office and when they leave it; and by
// a slow poll, as a leader that died sends none, and some stores have no feed. There
// it polls once a second while nobody leads.
package leader
