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
//   - A run that did not come to its end is repeated, so its work must tolerate that: see the table.
//     [AtMostOnce] turns this off, and [Retry] repeats one that failed.
//
// From the moment at which a process with the plan has read the job, each of its due times has exactly one fate,
// which the database knows and which is told: as [Ended], for a run that will not be repeated, or as [Dropped],
// also in a line of the log and to the observer (OpMiss). It is told once. If a process dies, or is cut off, while it
// tells, that may be twice, or of an Ended never: then the past alone has it.
//
//	what happened to a run             it is repeated                         told at last
//	-------------------------------    -----------------------------------    -------------------------
//	the function returned nil          no                                     Ended
//	it returned an error, panicked     no; Retry: n times, after a pause      Ended
//	the process was told to stop       at once; AtMostOnce: no                Ended
//	the process died, or was cut off   at once, twice; AtMostOnce: no         Dropped
//	it was claimed, but not begun      at once                                Dropped, if too late
//
// MaxLate holds for all repetitions of a run that failed or has not begun. Any process repeats a run.
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
// A job has one plan at a time, that of the process that started last; all others follow it. So a deploy may take its
// time, and no due time is lost between two plans: those before the change are the old plan's, and run too.
// A process that cannot read such a plan fails at its start, or leaves that job to others if it is running (ErrPlan).
// Due times during a pause are not run, and not told either. Those from before the pause that had not run
// yet are dropped by the first claim after [Scheduler.Resume].
//
// If the server's clock was far ahead for a while, a due time in the future may have been claimed. More
// than a day ahead, it is taken back, and may run once more when it comes. Less than a day ahead, the job
// waits, and a line in the log says so: [Scheduler.Forget] ends the wait.
//
// The protocol is explained in docs/internals/schedule.md.
package schedule
