// Package schedule runs a job once at each time it is due, however many processes have the job
// on their schedule.
//
//	jobs, err := schedule.New(db.Collection("jobs"))
//	err = jobs.Add("nightly-report", schedule.Cron("0 3 * * *"), report)
//	err = jobs.Run(ctx) // in every process; until ctx ends
//
// One process claims the due time and runs the function. The function's context ends with the
// run's lease, and when the process is told to stop. By default no night is lost:
//
//   - A due time that comes while an earlier run of the job is under way waits for the end of that
//     run. If several come, the latest runs. [Beside] runs it at once, beside the other.
//   - The same holds for due times at which no process was up, none reached the database, or no
//     worker was free. [Each] makes all of them run, in order. [MaxLate] drops those that are too
//     late.
//   - A run that was stopped, or whose process died, is repeated in another process, so its work
//     must tolerate that. [AtMostOnce] turns this off.
//
// These four settings are independent of each other. Each due time that will not run is told once:
// by an event ([Dropped]) with the number, a line in the log, and the observer (OpMiss).
//
// [Scheduler.RunNow], [Scheduler.Pause] and [Scheduler.Resume] work from any process, and so do the
// commands mongolock jobs run, pause, resume and forget. Package scheduletest tests your jobs.
//
// # What to take care of
//
// Only the claim of a due time is promised to happen once. A run whose process died may have done
// its work or not, which cannot be known. Repeated work does no harm if its writes are conditional on
// the run's Due or [Run.Token], which rises with every run of a job (package fence).
//
// If a job's plan changes, the due times before a process with the new plan has read the job are
// those of the old plan, and are neither run nor told. Due times during a pause are not run, and not
// told either. Due times from before the pause that had not run yet are told after [Scheduler.Resume].
//
// If the server's clock was far ahead for a while, a due time in the future may have been claimed. More
// than a day ahead, it is taken back, and until that time has come the tokens of the job's runs are
// lower than the token of that run. Less than a day ahead, the job waits, and a line in the log says
// so: [Scheduler.Forget] ends the wait.
//
// The protocol is explained in docs/internals/schedule.md.
package schedule
