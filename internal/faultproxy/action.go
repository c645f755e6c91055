package faultproxy

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An Action is what befalls a matched command or the reply to it.
type Action struct {
	command step
	reply   step

	// late: the proxy wants the server's reply though the client may be gone.
	late bool
}

// A step does its work on one message, which it may replace, and says what
// becomes of it.
type step func(x *exchange, r *Rule, m *message) (*message, fate)

type fate int

const (
	forward fate = iota // send it on
	respond             // send it back to the client: the server never sees the command
	silence             // swallow it and all that follows on this connection
	hangUp              // close the connection instead
	reset               // the same, by RST
)

func end(f fate) step {
	return func(_ *exchange, _ *Rule, m *message) (*message, fate) { return m, f }
}

// DropReply lets the server apply the command, then closes the connection
// instead of passing on the reply.
func DropReply() Action { return Action{reply: end(hangUp), late: true} }

// ResetReply is DropReply with a TCP reset.
func ResetReply() Action { return Action{reply: end(reset), late: true} }

// SwallowReply lets the server apply the command and then keeps the connection
// open and silent for good.
func SwallowReply() Action { return Action{reply: end(silence), late: true} }

// DropCommand closes the connection before the server sees the command.
func DropCommand() Action { return Action{command: end(hangUp)} }

// Reset is DropCommand with a TCP reset.
func Reset() Action { return Action{command: end(reset)} }

// HalfOpen swallows the command and everything after it on its connection, which
// stays open.
func HalfOpen() Action { return Action{command: end(silence)} }

// DelayCommand sends the command on after d, also when the client has given it up.
func DelayCommand(d time.Duration) Action { return Action{command: pause(d), late: true} }

// DelayReply passes the reply on after d.
func DelayReply(d time.Duration) Action { return Action{reply: pause(d), late: true} }

// Hold keeps the command until the rule's Release, and sends it on then, also when
// the client has given it up: it is applied late.
func Hold() Action { return Action{command: wait, late: true} }

// HoldReply lets the server apply the command and keeps the reply until Release.
func HoldReply() Action { return Action{reply: wait, late: true} }

// Orphan closes the client's side of the connection at once and keeps the command
// until Release: the driver's retry overtakes it.
func Orphan() Action {
	return Action{late: true, command: func(x *exchange, r *Rule, m *message) (*message, fate) {
		_ = x.conn.client.Close()
		return wait(x, r, m)
	}}
}

func wait(x *exchange, r *Rule, m *message) (*message, fate) {
	select {
	case <-r.released.ch:
		return m, forward
	case <-x.conn.ctx.Done():
		return m, reset
	}
}

func pause(d time.Duration) step {
	return func(x *exchange, r *Rule, m *message) (*message, fate) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return m, forward
		case <-r.released.ch:
			return m, forward
		case <-x.conn.ctx.Done():
			return m, reset
		}
	}
}

// EditReply passes on what f makes of the reply. The values in it are of type
// bson.RawValue, and what f puts in may be anything that bson.Marshal takes.
func EditReply(f func(reply bson.D) bson.D) Action {
	return Action{reply: func(_ *exchange, _ *Rule, m *message) (*message, fate) {
		return m.edited(f), forward
	}}
}

// ShiftReply moves all dates in the reply by d and nothing else. This lies: what
// the client makes of such a date is not moved back on its way to the server. For
// a server whose clock is off, see [Proxy.ShiftClock].
func ShiftReply(d time.Duration) Action {
	return Action{reply: func(_ *exchange, _ *Rule, m *message) (*message, fate) {
		if !(clockShift{dates: d}).apply(m) {
			return m, reset
		}
		return m, forward
	}}
}

// RemoveOperationTime takes operationTime out of the reply.
func RemoveOperationTime() Action {
	return EditReply(func(d bson.D) bson.D { return without(d, "operationTime") })
}

// RemoveClusterTime takes $clusterTime out of the reply, and out of the command:
// a driver that learnt it elsewhere must not give it away.
func RemoveClusterTime() Action {
	a := EditReply(func(d bson.D) bson.D { return without(d, "$clusterTime") })
	a.command = hideClusterTime
	return a
}

// SetOperationTime gives the reply this operationTime.
func SetOperationTime(ts bson.Timestamp) Action {
	return EditReply(func(d bson.D) bson.D { return with(d, "operationTime", ts) })
}

// SetClusterTime gives the reply this $clusterTime, unsigned, and takes
// $clusterTime out of the command: the server never hears the forgery.
func SetClusterTime(ts bson.Timestamp) Action {
	a := EditReply(func(d bson.D) bson.D {
		return with(d, "$clusterTime", bson.D{
			{Key: "clusterTime", Value: ts},
			{Key: "signature", Value: bson.D{
				{Key: "hash", Value: bson.Binary{Data: make([]byte, 20)}},
				{Key: "keyId", Value: int64(0)},
			}},
		})
	})
	a.command = hideClusterTime
	return a
}

func hideClusterTime(_ *exchange, _ *Rule, m *message) (*message, fate) {
	return m.edited(func(d bson.D) bson.D { return without(d, "$clusterTime") }), forward
}

func with(d bson.D, key string, value any) bson.D {
	return append(without(d, key), bson.E{Key: key, Value: value})
}

func without(d bson.D, key string) bson.D {
	kept := d[:0]
	for _, e := range d {
		if e.Key != key {
			kept = append(kept, e)
		}
	}
	return kept
}

// edited returns m with f applied to its body, or m itself if there is nothing to
// apply it to.
func (m *message) edited(f func(bson.D) bson.D) *message {
	elements, err := m.body.Elements()
	if m.body == nil || err != nil {
		return m
	}
	doc := make(bson.D, 0, len(elements)+1)
	for _, e := range elements {
		value, err := e.ValueErr()
		if err != nil {
			return m
		}
		doc = append(doc, bson.E{Key: e.Key(), Value: value})
	}
	body, err := bson.Marshal(f(doc))
	if err != nil {
		panic("faultproxy: an edit made something that is not BSON: " + err.Error())
	}
	return m.withBody(body)
}
