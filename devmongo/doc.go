// Package devmongo finds or starts a MongoDB server to develop and test against.
//
// [Start] takes the first that this machine can offer:
//
//  1. the server that MONGODB_URI names, which is asked but never stopped, killed or stepped down;
//  2. a mongod on PATH, as a replica set of one node;
//  3. secantusd-rs on PATH, or in the user's cache folder under mongolock/secantus/bin;
//  4. mongo:8 in Docker, if a daemon answers;
//  5. FerretDB on SQLite, inside this process, behind a gate that passes one command at a time.
//
// They are not equal. [Server.Capabilities] says what a server can show and [Server.Limits] what it
// cannot, so that a test which proves nothing on the server at hand says so instead of passing.
//
// The command devmongo is the same for programs in other modules, which cannot import this one:
// `devmongo exec -- go test ./...` hands the server to its child through the environment.
package devmongo
