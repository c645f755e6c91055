// Package devmongo finds or starts a MongoDB server to develop and test against.
//
// [Start] takes the first that this machine has:
//
//  1. the server that MONGODB_URI names, which is never stopped, killed or stepped down;
//  2. a mongod on PATH, as a replica set of one node;
//  3. secantusd-rs on PATH, or in the user's cache folder under mongolock/secantus/bin;
//  4. mongo:8 in Docker, if a daemon answers;
//  5. FerretDB on SQLite, inside this process, behind a gate that passes one command at a time.
//
// [Members] makes the second and the fourth a replica set of several, [Shards] a sharded cluster, whose members
// can be broken one by one.
//
// They differ in what they can show. [Server.Capabilities] lists what a server can show and
// [Server.Limits] what it cannot, so that a test that would prove nothing on a server skips by name
// instead of passing.
//
// The command devmongo serves programs in other modules, which cannot import this one:
// `devmongo exec -- go test ./...` passes the server to its child through the environment.
package devmongo
