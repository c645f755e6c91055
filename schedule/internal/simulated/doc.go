// Package simulated tries a schedule by seeds: over a store in memory, and over simulated servers of MongoDB. It has only
// tests, and is a package of its own so that an import of schedule brings nothing that they need.
package simulated
