// Package gocronlock makes several hosts run each job of gocron v2 once: by a lock for
// each job, or by one leader, on MongoDB.
//
//	locker, err := gocronlock.NewLocker(client, gocronlock.With(mongolock.MinHold(30*time.Second)))
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// [Locker] locks each run under the job's name, which is the function's unless you set
// one (gocron.WithName): give each job its own. A host that finds the key held skips
// the run. The key is free again when the job is done. So a host whose clock is late by
// more than the job takes would run the job a second time. mongolock.MinHold prevents
// that: it keeps the key for a given time from its grant on. That time should be longer
// than the hosts' clocks differ, and shorter than the job's period. Where that is not
// enough, use package schedule: it claims each due time of a job instead of locking the job.
//
// [Elector] makes one host run all jobs. gocron uses either a locker or an elector: if
// it has an elector it never calls the locker.
//
// gocron counts a refused run as skipped. A job's gocron.AfterLockError learns why: another
// host has the key (mongolock.ErrHeld), which is normal, or the database is away.
//
// gocron does not tell a job that its lease was lost. A job that must know takes its
// own lease with mongolock.TryDo, and needs no Locker.
package gocronlock
