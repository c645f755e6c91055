// Package chaos breaks a real server under real processes and judges what they
// believed. It has tests only; make chaos runs them.
//
// Several processes, the test binary itself, take and hold a few keys, each through
// a fault proxy of its own: alone, as readers and writers, with permits, two keys at
// once, and a document that is locked itself. A nemesis kills them with -9, stops and continues them,
// kills and restarts the server, steps it down, cuts and slows links, loses and
// delays messages, and shifts the clock in replies. Every process writes what it
// believes into a file, by the machine's one monotonic clock: a belief is a look at
// the lease that said it is held, and the moment just before that look. However late
// a stopped process looks, it cannot believe what it did not see. The judge is that
// of the simulation, package history.
package chaos
