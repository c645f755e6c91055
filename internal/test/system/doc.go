// Package system has no code of its own: its tests run the whole library, engine and
// store, against a real server, with faults between them and in several processes.
package system
