// Package faultproxy is a TCP proxy for tests that understands MongoDB's wire protocol and
// injects faults by rules.
//
// It listens on the loopback interface, between a driver and one server:
//
//	proxy := faultproxy.New(t, os.Getenv("MONGODB_URI"))
//	client, err := mongo.Connect(options.Client().ApplyURI(proxy.URI()))
//	…
//	lost := proxy.On(faultproxy.Command("findAndModify").Nth(1), faultproxy.DropReply())
//	…            // the caller gets a network error
//	<-lost.Fired() // but the server has applied the command
//
// A [Rule] joins a [Matcher], which selects commands, with [Action]s, which say what happens
// to them. All rules that match act, in the order in which they were made, until one of them
// ends the exchange.
//
// # What can be lost
//
//	the caller sees    the server has       action
//	network error      not seen it          DropCommand
//	network error      applied it           DropReply, ResetReply
//	network error      yet to apply it      Orphan, then Release
//	nothing            not seen it          HalfOpen
//	nothing            applied it           SwallowReply
//	nothing, for now   yet to apply it      Hold, DelayCommand
//	nothing, for now   applied it           HoldReply, DelayReply
//	an error reply     not seen it          NotPrimary, Fail
//	an error reply     applied it           NotPrimaryReply, FailReply, WriteConcernError
//
// Hold and Orphan make a stalled twin: a first send that waits in some socket while its
// caller gives up or its retry overtakes it, and that is applied late. A held command stays
// on its own connection to the server. That connection is kept open after the client's side
// is gone; only [Proxy.Cut], [Proxy.DropConnections] and [Proxy.Close] end it.
//
// # How drivers stay behind the proxy
//
// A driver that discovers a replica set leaves the address that it was given for those in the
// reply to hello. So the proxy replaces this server's address by its own in me, primary,
// hosts, passives and arbiters. Both ways of connecting stay behind the proxy: discovery
// ([Proxy.URI]) and directConnection ([Proxy.DirectURI]). The other members of a larger set
// keep their addresses; in front of such a set use DirectURI, or a proxy for each member with
// [Proxy.KeepAddresses] and a dialer.
//
// The proxy removes topologyVersion from replies to hello, so that drivers poll the server
// and do not listen to a stream. Rules then apply to every hello, and a driver that is told
// "not primary" looks again at once.
//
// # What it does not understand
//
// The proxy understands OP_MSG with document sequences, checksum, moreToCome and
// exhaustAllowed, and OP_QUERY as far as the first hello of a connection needs it.
// OP_COMPRESSED passes untouched, and no rule sees it. It should not occur, because the proxy
// removes compression from every reply to hello. TLS would hide everything, so a target that
// asks for it is refused.
package faultproxy
