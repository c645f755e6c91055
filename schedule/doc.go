// Package schedule runs jobs once per fire, however many processes have them on
// their schedule.
//
//	jobs, err := schedule.New(db.Collection("jobs"))
//	err = jobs.Add("nightly-report", schedule.Cron("0 3 * * *"), report)
//	err = jobs.Run(ctx) // in every process; until ctx ends
//
// A lock alone cannot do this. If the job is shorter than the hosts' timers are
// apart, the key is free again when the second host comes. What has to be taken
// is not the job but the *fire*: this job, at three o'clock. So a job's document
// stays, and remembers up to which fire everything is decided.
//
// This comment is the protocol. mongo.go and memory.go keep the documents,
// attempt.go is what a process does about a fire.
//
// # A fire
//
// A [Plan] ([Every], [Cron]) says when a job is due. It is the same in every
// process, so the time itself names the fire. The job's document has
//
//	decided  every fire up to it is: run, skipped or missed
//	busy     the ID of the run under way, and until when its process is believed to live
//	runs     the runs under way, by ID: fire, attempt, owner, began, expireAt
//	past     the last n that ended, in a ring of n slots: outcome, error, began, ended
//
// and a process claims the fire F, new ID in hand, with one command: where decided
// is before F and nobody is busy, set decided to F, busy and runs.ID to itself. The
// server applies it to one of those who ask, whenever they ask; of all others the
// filter matches nothing, and that is their answer, for one command too. decided
// only rises (but see below), so a fire once claimed cannot be claimed again: not
// by a timer that is late by minutes, nor by a command that was.
//
// Timers only decide when a process asks. They follow the server's clock, of
// which every reply is a sample; a process that asks too early, because its
// sample is old, waits after the reply until the server's clock shows F. Between
// fires nothing is sent. (A process whose claims are all lost has no samples; it
// asks for the time with a claim when the last is ten minutes old.)
//
// # A run
//
// The claim is a lease as well: runs.ID.expireAt is one TTL away, a third of the
// TTL later it is renewed, and the process's own deadline, one margin before that,
// rests on a server time drawn after the claim was sent. All of this is the lease
// engine of package mongolock, on a store whose keys are fires: [Run.Lease] is a
// [mongolock.Lease], and the context of a run ends with it. The end of a run is one
// command: runs.ID and busy go, past gets its record. A process that dies leaves
// runs.ID to run out; whoever comes next, [OnDeath] says when, sees that it has, by
// the server's clock, takes its place, and enters it as [Died].
//
// [Run.Token] is the fire in milliseconds and the attempt. It rises with every run
// of a job and does not start again when somebody deletes the document: give it to
// a resource that checks it (package fence).
//
// Once per fire is what is promised for *claims*. A run whose process dies at it
// may have done its work or not, and nobody can know. By default its fire is not
// repeated. With OnDeath(AtOnce) it is, and the job has to bear that; so it does
// if what it writes is conditional on the run's Fire or Token.
//
// # When a reply is lost
//
//   - Claim: the outcome is unknown, and the function does not run. The engine undoes
//     the claim by its ID, in its own session, until that is settled: runs.ID and
//     busy go and decided is put before F, if it is F still. The
//     process then reads the document before it claims F again: if F was decided
//     by somebody else, it was not by us.
//   - Renewal: counts as failed, is sent again, the old deadline stands.
//   - End: is sent again by ID until it is answered or the TTL is over. Found
//     nothing then means that it worked the first time.
//
// # When a fire is not run
//
// Overlap: a fire that comes due while a run is under way is skipped; with
// OnOverlap([QueueOne]) the last of them runs after it, with [QueueAll] each of
// them does; with [Allow] there may be several runs at once. A run that ends sets
// decided past the fires that it made skip, so a late timer cannot bring them back.
//
// Skipped are the fires within the time that the run took, counted from its own
// fire: those that it would have overlapped with on time. That its timer was late,
// or that it repeats the run of a process that died, costs no fire: one that came
// because of that is claimed by the same process when the run has ended. (If that
// process stops or dies just then, the fire is missed.) So a job that is shorter
// than its period runs at every fire, however late the timers are within it.
//
// Missed: a fire is missed if no process was there for it. It is if the next one
// is due, or if it is a minute old. By default missed fires are forgotten. With
// OnMissed([One]) the latest of them is run, with [All] each of them is, in order:
// then a claim asks also that the fire before it is decided, and a process that
// lost one looks, at most once a minute, whether one that died left some behind.
// Who fell behind reads where to go on, and claims when the job is not at work.
//
// # What is sent
//
// A claim is one command, won or lost; the end of a run is one; between fires there
// is none. Beside that, on MongoDB:
//
//	when Run begins           a find of up to 1,000 jobs, and a hello
//	a run over TTL/3          a renewal each TTL/3
//	a claim lost with All     a find and a hello, at most once a minute
//	a claim lost with AtOnce  a find and a hello, one TTL later: did the run die?
//	who fell behind, or       a find and a hello before it claims again, and while the job
//	could not write an end    is at work again, after 100 ms and then ever more rarely
//	an unknown outcome        the clean-up, one or two commands, and a find and a hello
//	a claim refused late      (after a second and more) the clean-up
//	a lost claim              a hello, if the clock's sample is over ten minutes old
//	a server without journal  the first write is sent twice
//	through a mongos          a hello is followed by an update of the job's document
//
// # In one process
//
// Run is one goroutine with one timer, for any number of jobs, and at most
// WithWorkers further ones, each of which claims one fire and runs it. If all of
// them are at work, what is due waits, and other processes may take it.
package schedule
