// Package simulation runs many clients of the real library against servers that exist only
// in memory, in virtual time. A seed decides what goes wrong: messages are delayed, lost and
// applied late; servers stall, step down, restart, and go on as if they were still primary;
// clients are cut off; clocks are stepped. The result is a history, which package history
// checks.
//
// Nothing of the library is replaced. Clients are made with mongolock.New on a collection of
// the real, unmodified driver. The driver sends its commands to a driver.Deployment of this
// package, whose connections answer within the process. So the driver's sessions,
// transaction numbers, retries and error labels are all in play. (These interfaces are the
// driver's experimental part; only tests use them.) The servers are made of package docdb.
//
//	world.go       one run: its clock, its log, its history
//	chance.go      random sources that depend on the seed
//	plan.go        what a seed makes go wrong, and when
//	servers.go     which kind they are, and how far their clocks are apart
//	cluster.go     members, replication, elections, rollback
//	server.go      how a member answers one command
//	router.go      routers before two shards, and chunks that migrate
//	network.go     how a command reaches a member, and its reply the client
//	delivery.go    what becomes of one command on its way
//	deployment.go  the driver's side
//	memory.go      the same over a memstore
//	process.go     one client
//	deaths.go      which clients are killed, and when
//	user.go        what its users do
//	keys.go        which keys they take, and how: exclusively, as readers, with permits, two at once
//	simulate.go    a whole run
//	readlog.go     what the database did
//	recording.go   what became of each command, for package trace
//	updates.go     the same for documents that clients change with package doclock
//	database.go    servers for tests that bring clients of their own (package schedule)
//	paths*.go      the same for clients of package pathlock: a run, its users, its judge
//
// The same seed gives the same log, byte for byte. All chance depends on the seed and on who
// asks for it, or when, but never on the order in which goroutines happen to run. No two
// events share an instant, because timers of one instant fire in any order. One event may
// wake several goroutines of a process; which of them runs first is left open, and must make
// no difference to what the judge finds. Histories of path locks are the exception: a command
// there is named by its token, and two goroutines of one instant may draw theirs in either
// order.
package simulation
