// Package schedule runs a job once at each time it is due, however many processes
// have the job on their schedule.
//
//	jobs, err := schedule.New(db.Collection("jobs"))
//	err = jobs.Add("nightly-report", schedule.Cron("0 3 * * *"), report)
//	err = jobs.Run(ctx) // in every process; until ctx ends
//
// One process claims the due time and runs the function. The function's context ends with the
// run's lease, and when the process is told to stop. By default no night is lost:
//
//   - A due time that comes while an earlier run of the job is under way waits for its end. If
//     several come, the latest runs. [Beside] lets it run at once, beside the other.
//   - So it is with due times at which no process was up, none reached the database, or no worker
//     was free. [Each] makes all of them run, in order. [MaxLate] drops those that are too late.
//   - A run that was stopped, or whose process died, is repeated in another process, so its work
//     must tolerate that. [AtMostOnce] turns this off.
//
// These four settings are independent of each other. A due time that will not run is told: once,
// by an event ([Dropped]) with the number, a line in the log, and the observer (OpMiss).
//
// [Scheduler.RunNow], [Scheduler.Pause] and [Scheduler.Resume] work from any process, and so do
// mongolock jobs run, pause, resume and forget. Package scheduletest tests your jobs.
//
// A lock alone cannot do this. If the job is shorter than the hosts' timers are apart, the key is
// free again when the second host asks for it. So a process does not claim the job but the due
// time. The rest of this comment is the protocol.
//
// # A due time
//
// A [Plan] ([Every], [Cron], [At]) says when a job is due. It is the same in every process, so
// the time itself names what is claimed. The job's document is made by the first process that
// has the job, and never deleted. It has
//
//	decided  every due time up to it is decided: run, or dropped
//	ended    the latest due time whose run has ended
//	busy     the ID of the run under way, and until when its process is believed alive
//	runs     the runs under way, by ID: due time, attempt, owner, began, expireAt
//	past     the last n runs that ended, in a ring of n slots: outcome, error, began, ended
//	asked    when the job was last told to run at once: a due time like those of the plan
//	paused   set while claims are refused; pausedAt, resumedAt: when the last pause began and ended
//
// A process claims the due time D, under a new ID, with one command: where decided is before D,
// no run is busy and the job is not paused, set decided to D, and busy and runs.ID to this run.
// The server applies the command for one of the processes, whenever they send it. For all
// others the filter matches nothing, and that is their answer, at the price of one
// command too. decided only rises (but see "When a reply is lost" and "When the clock was
// wrong"), so a due time that was claimed cannot be claimed again: not by a timer that is
// minutes late, and not by a command that is.
//
// With Each, D is the one after those that the process knows to be decided, and the claim also
// asks that they are. Otherwise D is the latest that has come. The reply shows the due time that
// was claimed last before (ended, or that of another run in runs): so the process that claims D
// knows which were dropped between them, and is the only one to tell. If D itself is later than
// MaxLate allows, the run ends at once, as [TooLate], and is told too.
//
// Timers only decide when a process sends its claim. They follow the server's clock, of which
// every reply is a sample. A process that claims too early, because its sample is old, waits
// after the reply until the server's clock shows D. (A process whose claims are all refused
// gets no samples. So if its last sample is ten minutes old, it asks for the time together with
// a claim.)
//
// A process whose claim was refused reads the job up to 15 s later, in one command for all jobs
// whose claims were refused then. If D is not decided by then, the process that had claimed it
// was stopped and gave it back, and it is claimed here; or a run is under way, and the job is read
// again when that would run out. That goes on until D is decided. So D runs even if the process
// dies whose run kept it waiting. (A job that is due more often than every 10 s is not read for
// that: its next claim comes sooner.)
//
// # A run
//
// The claim is also a lease. runs.ID.expireAt is one TTL away. The run renews it every
// third of the TTL. The process's own deadline is one margin earlier, and rests on a
// server time drawn after the claim was sent. All of this is a [mongolock.Lease], which is
// [Run.Lease], on a store whose keys are due times. One command ends a run: it removes runs.ID and
// busy, and enters the run in past. If a process dies, its runs.ID runs out. A process that sees,
// by the server's clock, that it has run out takes its place with a new attempt, and enters it
// as [Died]. A run that was [Stopped] is left in runs as if it had run out, and is repeated in
// the same way. With AtMostOnce both are entered in the past, and the next due time is the next
// to run. A due time whose third attempt dies is given up and told as dropped.
//
// [Run.Token] is made of the due time in milliseconds and the attempt. It rises with every run of
// a job, and does not start again if the document is deleted. Give it to a resource that checks
// it (package fence). [mongolock.Lease.Detach] of a run's lease is refused, because the lease
// could not be resumed.
//
// Only the *claim* is promised to happen once per due time. A run whose process died may have
// done its work or not, and that cannot be known. Work that is repeated does no harm if its
// writes are conditional on the run's Due or Token.
//
// # When a reply is lost
//
//   - Claim: the outcome is unknown, and the function does not run. The client undoes
//     the claim by its ID, in its own session, until that is settled: it removes
//     runs.ID and busy, and sets decided to just before D, if it is still D. The
//     process then reads the document before it claims D again. If D is decided by then,
//     another process has decided it.
//   - Renewal: it counts as failed and is sent again. The old deadline stands.
//   - End: it is sent again by ID until it is answered or the TTL is over. If it finds
//     nothing then, the first one worked.
//
// # Changed plans, pauses, one-off times
//
// If a job's plan changes, the due times before a process with the new plan has read the job are
// those of the old plan, and are neither run nor told. Due times during a pause are not run and
// not told either. Resume decides them, and also those before the pause that had not run yet: the
// next claim tells these.
//
// # When the clock was wrong
//
// If the server's clock is far ahead for a while, a due time in the future is claimed. When the
// clock is right again, decided still lies in the future, and every due time until then would be
// refused. A process that sees this logs it. If decided is more than a day ahead, the next
// claim takes it back, on the condition that it still has that value; so only one process does.
// The tokens of the job's runs are then lower than that of the run in the future, until that
// time has come: a resource that has seen that token refuses them until its memory of it is
// removed. If decided is less than a day ahead, the job waits: those may have run
// rightly, and the clock be wrong now. [Scheduler.Forget] ends the wait.
//
// A process may learn from the reply to its claim that the clock has stepped back, so that
// it is far in the future. It then gives it back and reads all jobs again.
//
// # What is sent
//
// A claim is one command, won or lost. The end of a run is one. Only the replies to Job and
// Jobs carry the past. In addition, on MongoDB:
//
//	when Run begins           a find of up to 1,000 jobs, and a hello; an upsert for a job that
//	                          has no document yet
//	every 30 s                a find: which jobs are to run now?
//	a run over TTL/3          a renewal each TTL/3
//	a claim lost              up to 15 s later a find, for up to 1,000 jobs, and a hello if
//	                          one of them has a run under way; at most once a TTL for a
//	                          job that is due more often than every 10 s
//	                          the same again when a run under way would run out, without
//	                          AtMostOnce or while a due time waits for that run
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
// Run is one goroutine with one timer, for any number of jobs, one that asks which jobs are to
// run now, and at most WithWorkers further ones. Each of these claims one due time and runs it.
// While all of them are busy, a due time waits for one. Another process may claim it meanwhile.
package schedule
