// Package specpath asks a store what docs/internals/spec/Store.tla says of it. The specification is
// a graph: a state is what the record of a key holds, and an edge is a call in that state,
// an answer that is allowed, and the state that follows. TLC prints it for small bounds
// (docs/internals/spec/StoreGraph.tla); `make spec-tests` does that and runs the tests that walk it.
//
// A state is <<mode, line, holders>>: line has <<number, mode, fresh>> of each place, holders
// <<there, left, broken, released>> of each id. A claim is <<"acquire", id, mode, place, pass,
// late>>, with 0 for no place; <<"leave", place, silent>> takes one out. The answers <<"granted",
// line>> and <<"released", line, left>> have the numbers of those who wait.
//
// A walk makes every call in every state. After each step the answer, and a look at the
// key, must be those of an edge. Time is in ticks: in a synctest bubble a tick is slept; on
// a server every date in the document is moved back by one, which is the same to a store
// that judges by the server's clock, and the next calls are those of another process.
package specpath
