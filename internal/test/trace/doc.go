// Package trace turns a history of the simulation into behaviours of docs/internals/spec/LockTrace.tla,
// one for each key, of docs/internals/spec/PathTrace.tla, one for the tree of path locks, or of
// docs/internals/spec/DocumentTrace.tla, one for each document of doclock, and has TLC decide which of
// them the specification allows. Those of ScheduleTrace.tla are made in schedule/internal/simulated.
//
// A behaviour is what became of each command: it was sent, a primary executed it and its
// document was this or that afterwards, a majority had it, it was answered; and what the
// users of a lease saw. Nothing of what a client thinks is guessed: the specification says
// when it may send what, and that is asked of each command.
//
// Behind routers a behaviour follows its key from shard to shard. Left out are documents
// there.
//
//	operation.go  which row of design.md §4.4 a command is, read from its filter and update
//	behaviour.go  the steps of a key, and what all kinds of behaviours share
//	server.go     what primaries make of commands, elections, majorities
//	client.go     what clients send, are answered and see
//	place.go      attempts and locks that are over leave their place to others
//	paths*.go     the same for the tree of clients of package pathlock: commands, steps, places
//	documents.go  the same for documents of clients of package doclock
//	module.go     the steps as a module of TLA+, many behaviours in one, and TLC
//
// Which modules they are asked of, and with which constants, is in specification.go.
package trace
