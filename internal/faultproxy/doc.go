// Package faultproxy is a TCP proxy for tests that understands MongoDB's wire
// protocol and does harm to order.
//
// It stands on the loopback interface between a driver and one server:
//
//	proxy := faultproxy.New(t, os.Getenv("MONGODB_URI"))
//	client, err := mongo.Connect(options.Client().ApplyURI(proxy.URI()))
//	…
//	lost := proxy.On(faultproxy.Command("findAndModify").Nth(1), faultproxy.DropReply())
//	…            // the caller gets a network error
//	<-lost.Fired() // but the server has applied the command
//
// A [Rule] joins a [Matcher], which picks commands, with [Action]s, which befall
// them. Rules are looked at in the order in which they were made, and all that
// match act, in that order, until one of them ends the exchange.
//
// # What may be lost, and what that proves
//
//	the caller sees    the server has       action
//	network error      not seen it          DropCommand, Reset
//	network error      applied it           DropReply, ResetReply
//	network error      yet to apply it      Orphan, then Release
//	nothing            not seen it          HalfOpen
//	nothing            applied it           SwallowReply
//	nothing, for now   yet to apply it      Hold, DelayCommand
//	nothing, for now   applied it           HoldReply, DelayReply
//	an error reply     not seen it          NotPrimary, Fail
//	an error reply     applied it           NotPrimaryReply, FailReply, WriteConcernError
//
// Hold and Orphan make the stalled twin: a first send that waits in some socket
// while its caller gives up or its retry overtakes it, and is applied late. What
// a proxy holds stays on its own connection to the server, which is kept open for
// it after the client's side is gone; only [Proxy.Cut], [Proxy.DropConnections]
// and [Proxy.Close] end that too.
//
// # Finding the way back through the proxy
//
// A driver that discovers a replica set leaves the address it was given for the
// ones in the reply to hello. The proxy therefore puts its own address in place
// of this server's in me, primary, hosts, passives and arbiters, and both ways of
// connecting stay behind it: discovery ([Proxy.URI]) and directConnection
// ([Proxy.DirectURI]). The other members of a larger set keep their addresses; to
// meet them as well use DirectURI.
//
// topologyVersion is taken out of hello, so that drivers poll the server instead of
// listening to a stream: rules then apply to every hello, and a driver told "not
// primary" looks again at once.
//
// # What it does not understand
//
// OP_MSG is understood with its document sequences, checksum, moreToCome and
// exhaustAllowed, and OP_QUERY as far as the first hello of a connection needs
// it. OP_COMPRESSED passes untouched and no rule sees it; it should not turn up,
// since compression is taken out of every reply to hello, so that a driver never
// agrees on a compressor. TLS would hide everything: a target that asks for it is
// refused.
package faultproxy
