// Package schedule runs a job once at each time it is due, however many processes
// have the job on their schedule.
//
//	jobs, err := schedule.New(db.Collection("jobs"))
//	err = jobs.Add("nightly-report", schedule.Cron("0 3 * * *"), report)
//	err = jobs.Run(ctx) // in every process; until ctx ends
//
// A lock alone cannot do this. If the job is shorter than the hosts' timers are
// apart, the key is free again when the second host asks for it. So a process does
// not claim the job but the fire. A *fire* is one time at which a job is due: this
// job, at three o'clock. The job's document is never deleted, and remembers up to
// which fire everything is decided.
//
// This comment is the protocol. mongo.go and memory.go keep the documents; attempt.go
// is what a process does about a fire.
//
// # A fire
//
// A [Plan] ([Every], [Cron]) says when a job is due. It is the same in every process,
// so the time itself names the fire. The job's document has
//
//	decided  every fire up to it is decided: run, skipped or missed
//	busy     the ID of the run under way, and until when its process is believed alive
//	runs     the runs under way, by ID: fire, attempt, owner, began, expireAt
//	past     the last n runs that ended, in a ring of n slots: outcome, error, began, ended
//
// A process claims the fire F, under a new ID, with one command: where decided is
// before F and no run is busy, set decided to F, and busy and runs.ID to this run. The
// server applies the command for one of the processes, whenever they send it. For all
// others the filter matches nothing, and that is their answer, at the price of one
// command too. decided only rises (but see "When a reply is lost" and "When the clock was
// wrong"), so a fire that was claimed cannot be claimed again: not by a timer that is
// minutes late, and not by a command that is.
//
// Timers only decide when a process sends its claim. They follow the server's clock, of which
// every reply is a sample. A process that claims too early, because its sample is old, waits
// after the reply until the server's clock shows F. (A process whose claims are all refused
// gets no samples. So if its last sample is ten minutes old, it asks for the time together with
// a claim.)
//
// A process whose claim was refused looks once more, up to 15 s later, because the other
// process may have given the fire back. That happens if it is stopped before its claim was
// answered. The look is one command for all jobs whose claims were refused then. Between fires
// nothing else is sent.
//
// # A run
//
// The claim is also a lease. runs.ID.expireAt is one TTL away. The run renews it every
// third of the TTL. The process's own deadline is one margin earlier, and rests on a
// server time drawn after the claim was sent. All of this is the lease engine of
// package mongolock, on a store whose keys are fires: [Run.Lease] is a
// [mongolock.Lease], and the context of a run ends with it. One command ends a run: it
// removes runs.ID and busy, and enters the run in past. If a process dies, its runs.ID
// runs out. The next process to come ([OnDeath] says when) sees by the server's clock
// that it has run out, takes its place, and enters it as [Died].
//
// [Run.Token] is made of the fire in milliseconds and the attempt. It rises with every run of a
// job, and does not start again if the document is deleted. Give it to a resource that checks
// it (package fence). [mongolock.Lease.Detach] of a run's lease is refused, because the lease
// could not be resumed.
//
// Only the *claim* is promised to happen once per fire. A run whose process died may have done
// its work or not, and that cannot be known. By default its fire is not repeated. With
// OnDeath(AtOnce) it is repeated, and the job has to tolerate that. It does if its writes are
// conditional on the run's Fire or Token.
//
// # When a reply is lost
//
//   - Claim: the outcome is unknown, and the function does not run. The engine undoes
//     the claim by its ID, in its own session, until that is settled: it removes
//     runs.ID and busy, and sets decided to just before F, if it is still F. The
//     process then reads the document before it claims F again. If F is decided by then,
//     another process has decided it.
//   - Renewal: it counts as failed and is sent again. The old deadline stands.
//   - End: it is sent again by ID until it is answered or the TTL is over. If it finds
//     nothing then, the first one worked.
//
// # When a fire is not run
//
// Overlap: a fire that comes due while a run is under way is skipped. With
// OnOverlap([QueueOne]) the last of these fires runs after it, with [QueueAll] each of
// them does. With [Allow] there may be several runs at once. The end of a run sets
// decided past the fires that it made the job skip, so a late timer cannot bring them
// back.
//
// A run skips the fires within the time it took, counted from its own fire: those that
// it would have overlapped if it had begun on time. A fire that overlapped only because
// a timer was late, or because the run repeats that of a process that died, is not
// skipped: the same process claims it when the run has ended. (If that process stops
// or dies just then, the fire is missed.) So a job that is shorter than its period runs
// at every fire, as long as its timers are late by less than a period.
//
// Missed: a fire is missed if no process claims it in time. That is before the next one is
// due, and with OnMissed([None]), the default, within a minute. Jitter does not count
// towards the minute, nor does the time for which the fire waits for a worker. By default
// missed fires are forgotten. With OnMissed([One]) the latest of them runs. With [All] each
// of them runs, in order: then a claim also asks that the fire before it is decided, and
// the look after a refused claim shows whether a process that died has left fires behind.
// A process that fell behind reads where to go on, and claims when no run is under way.
//
// Skipped and missed fires appear in the log and as events ([Skipped], [MissedFires]).
//
// A process that stops before its claim was answered gives the fire back, and another one runs
// it, up to 15 s later. This holds for jobs that are due no more often than every 10 s. With
// All it holds for every job, up to a minute later. Otherwise the fire is missed.
//
// # When the clock was wrong
//
// If the server's clock is far ahead for a while, a fire in the future is claimed. When the
// clock is right again, decided still lies in the future, and every fire until then would be
// refused. A process that sees this logs it. If decided is more than a day ahead, the next
// claim takes it back, on the condition that it still has that value; so only one process does.
// The tokens of the job's runs are then lower than that of the run in the future, until that
// time has come: a resource that has seen that token refuses them until its memory of it is
// removed. If decided is less than a day ahead, the job waits: those fires may have run
// rightly, and the clock be wrong now. [Scheduler.Forget] ends the wait.
//
// A process may learn from the reply to its claim that the clock has stepped back, so that
// the fire is far in the future. It then gives the fire back and looks up all jobs again.
//
// # What is sent
//
// A claim is one command, won or lost. The end of a run is one. Only the replies to Job and
// Jobs carry the past. In addition, on MongoDB:
//
//	when Run begins           a find of up to 1,000 jobs, and a hello
//	a run over TTL/3          a renewal each TTL/3
//	a claim lost              up to 15 s later a find, for up to 1,000 jobs, and a hello if
//	                          one of them has a run under way; at most once a minute for a
//	                          job that is due more often than every 10 s
//	a claim lost with AtOnce  the same again when the run under way would run out
//	a process that is behind, a find, and a hello if a run is under way, before it claims
//	or could not write an end again; then again after 100 ms and ever more rarely
//	an unknown outcome        the clean-up, one or two commands, and a find and a hello
//	a claim refused late      (after a second or more) the clean-up
//	a lost claim              a hello, if the clock's sample is over ten minutes old
//	a server without journal  the first write is sent twice, and so it is on FerretDB
//	through a mongos          a hello is followed by an update of the job's document
//
// # In one process
//
// Run is one goroutine with one timer, for any number of jobs, and at most WithWorkers further
// ones. Each of these claims one fire and runs it. While all of them are busy, a fire that
// comes due waits for one, however long, unless the next fire of its job comes due as well.
// Another process may claim it meanwhile.
package schedule
