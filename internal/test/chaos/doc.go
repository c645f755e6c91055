// Package chaos breaks a real server under real processes and checks what they believed.
// It has tests only; make chaos runs them.
//
// Several worker processes, which are the test binary itself, take and hold a few keys:
// exclusively, as readers and writers, with permits, two keys at once, a document that is
// locked itself and saved, now and then in a transaction, and a key whose client is closed
// while it holds it. Each process has a fault proxy of its own between it and the server. A
// nemesis kills processes with -9, stops and continues them, kills and restarts the server,
// steps it down, cuts and slows links, loses and delays messages, shifts the clock in
// replies, and blocks a record by an open transaction.
//
// Another test has workers that lock overlapping paths of a tree, judged by the rule of
// package pathlock.
//
// In a third test every other process is a program in Python, and the nemesis silences holders for
// about a TTL.
//
// Every process writes what it believes into a file, by the machine's one monotonic clock.
// A belief is a look at the lease that said it is held, at the moment just before the look.
// So a stopped process cannot believe what it did not see, however late it looks. Package
// history checks these records as it checks those of the simulation.
package chaos
