// Package servers finds, starts and breaks the servers of devmongo.
//
// [Start] takes the first that this machine has. [Config.Members] makes a mongod, or Docker's, a replica set
// of several, [Config.Shards] a sharded cluster, whose members can be broken one by one.
//
// They differ in what they can show. [Server.Capabilities] lists what a server can show and
// [Server.Limits] what it cannot, so that a test that would prove nothing on a server skips by name
// instead of passing.
package servers
