// Package simulation runs many clients of the real library against servers that
// exist only in memory, in virtual time, and lets everything go wrong that a seed
// says: messages are delayed, lost and applied late, servers stall, step down,
// restart and go on as if they were still primary, clients are cut off, clocks
// are stepped. What came of it is a history, which package history judges.
//
// Nothing of the library is replaced. Clients are made with mongolock.New on a
// collection of the real, unmodified driver; what the driver would send goes to a
// driver.Deployment of ours, whose connections answer in this process. So the
// driver's sessions, transaction numbers, retries and error labels are all in
// play. (These interfaces are the driver's experimental part, and used in tests
// only.) The servers are made of package docdb.
//
//	world.go       a seed, the clock, chance, and the log
//	weather.go     what a seed makes go wrong, and when
//	cluster.go     members, replication, elections, rollback
//	server.go      how a member answers one command
//	network.go     how a command gets there and its answer back
//	deployment.go  the driver's side
//	process.go     one client, and what its users do
//	modes.go       how they take keys: alone, as readers, with permits, two at once
//	chance.go      what the library draws by chance
//	run.go         a whole history
//
// The same seed gives the same log, byte for byte. All chance comes from the seed
// and from who asks for it, or when, never from the order in which goroutines
// happen to run; and no two events share an instant, as timers that do fire in any
// order. One event may wake several goroutines of a process: which of them runs first
// is left open, and must make no difference.
package simulation
