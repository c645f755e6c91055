// Package leader keeps one process of many in charge, and tells the others which one.
//
//	err := leader.Run(ctx, client, "billing", func(ctx context.Context, term leader.Term) error {
//		return bill(ctx) // ctx ends when this process no longer leads
//	})
//
// Call Run in every process, with the same key. It waits until this process is elected, calls the
// function, and stands for election again when the term was lost or resigned. It returns when ctx ends, or with
// what the function returned while this process led. The function gets a context that ends with the
// term, at least one margin before another process can lead: pass it on to everything that the
// function calls, and return when it ends.
//
//   - [New] makes a [Candidate], which says whether this process leads (IsLeader, Term), and gives the
//     lead to another one (Resign).
//   - [Warm] prepares a process before it stands for election, and with [AwaitSuccessor] a leader that
//     is stopped goes on until another candidate is ready.
//   - [Priority] prefers a process: a zone near the database, or a new version.
//   - [Watch] and [Current] tell any process which one leads.
//   - [Healthy] is a liveness check: it fails if the work of a term that is over goes on.
//   - [With] gives options of the term's lease. With mongolock.TTL(10*time.Second) a leader that
//     died is replaced within ten seconds; the default is 30 s.
//
// A leader may be paused at any instruction, and act after its term has ended. If two processes must
// never write the same thing, give [Term.Token] to the resource (package fence).
//
// A term is an exclusive lease of package mongolock, whose promises it has. The candidates of all
// processes wait in the line of its key. [Candidate.IsLeader] compares the term's deadline with this
// process's clock at each call, so it is never out of date.
//
// A leader sends a notice on the store's feed when its term begins and when it ends. A leader that died
// sends none, so [Watch] also looks every 30 s, and when the lease of the leader that it saw would
// end. Without a feed it looks once a second as long as no process leads.
package leader
