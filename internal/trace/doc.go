// Package trace turns a history of the simulation into behaviours of docs/spec/LockTrace.tla,
// one for each key, and has TLC decide which of them the specification allows.
//
// A behaviour is what became of each command: it was sent, a primary executed it and its
// document was this or that afterwards, a majority had it, it was answered; and what the
// users of a lease saw. Nothing of what a client thinks is guessed: the specification says
// when it may send what, and that is asked of each command.
//
// Histories with sessions are left out, which have a specification of their own, and those in which
// keys linger: a grant that a client gives out itself is no step of the database.
//
//	operation.go  which row of design.md §4.4 a command is, read from its filter and update
//	behaviour.go  the steps of a key
//	server.go     what primaries make of commands, elections, majorities
//	client.go     what clients send, are answered and see
//	place.go      attempts that are over leave their place to others
//	module.go     the steps as a module of TLA+, many behaviours in one, and TLC
package trace
