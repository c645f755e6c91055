// Package gocronlock lets several hosts run the jobs of gocron v2 once: one lock, or
// one leader, on MongoDB.
//
//	locker, err := gocronlock.NewLocker(client, mongolock.MinHold(30*time.Second))
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// [Locker] locks each run under the job's name: give every job one (gocron.WithName),
// or it is the function's. Lock is a try, since gocron has nobody wait: a job whose key
// is held is skipped on this host. A lock is free when the job is done, so a host
// whose clock is late by more than the job takes would run it again:
// mongolock.MinHold keeps the key for so long from its grant on. It should be longer
// than the clocks are apart, and shorter than the period. Where that is not enough,
// package schedule claims fires instead of locking jobs.
//
// [Elector] lets one host run all jobs. With an Elector set gocron never calls the
// Locker: it is one or the other.
//
// gocron does not tell a job that its lease was lost. A job that has to know takes
// its own, with mongolock.TryDo, and needs no Locker.
package gocronlock
