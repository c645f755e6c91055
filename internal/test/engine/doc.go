// Package engine tests the lease engine from the outside, through what the root package exports: in virtual
// time, on stores in memory that lose, delay and refuse calls. The root keeps the tests to read first, of Do, of
// a lease and of New. A file is named for what it tests, or for its scenario.
package engine
