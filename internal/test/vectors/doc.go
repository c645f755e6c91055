// Package vectors makes and runs the test vectors of docs/internals/format.md, the files in
// docs/internals/vectors. It has tests only.
//
// A vector is a state of a key and what a client may do in it: the commands, their replies, and
// the document afterwards, in MongoDB's Unified Test Format. The library itself performs each step
// on a server in memory (record_test.go), and what it sends is written down with fixed IDs,
// dates and revisions (fixed_test.go). TestTheVectorsAreWhatTheLibrarySends does that again, and
// compares: it fails if a command of the library changes. `make vectors` writes the files.
//
// The driver's own runner of that format is internal to it. So run_test.go has a small one, for the
// operations that the vectors have. It runs the files on the server in memory, and on a real one.
package vectors
