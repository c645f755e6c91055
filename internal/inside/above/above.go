// Package above is package inside for the packages above the lock: it shows packages for tests, and
// packages that stand on others, what no user may see of doclock, schedule and pathlock. A program
// that uses none of these compiles none of it.
package above

// Engine returns the *mongolock.Client under a *doclock.Locks. It is for packages doclocktest
// and once alone.
var Engine func(locks any) any

// Decode returns the value of a document, a bson.Raw, as a *doclock.Locks does. It is for package doclocktest
// alone.
var Decode func(locks, document any) (value any, err error)

// Scheduler makes a *schedule.Scheduler on a jobs.Store, with a []schedule.Option. It is for
// package scheduletest and the tests of schedule alone.
var Scheduler func(store, options any) (scheduler any, err error)

// Runs are the runs under way of a job of a *schedule.Scheduler, each as a *mongolock.Lease. It
// is for package scheduletest alone. There are none while the Scheduler is not running.
var Runs func(scheduler any, job string) []any

// FailingPaths makes a pathlock.Storage in memory whose calls fail with what failure returns, and the
// same storage without faults. It is for package pathlocktest alone.
var FailingPaths func(failure func() error) (failing, intact any)
