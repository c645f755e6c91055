package faultproxy

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/wire"
)

// An Action is what happens to a matched command or to its reply.
type Action struct {
	command step
	reply   step

	// late makes the proxy wait for the server's reply even if the client is gone.
	late bool
}

// A step handles one message, which it may replace, and says what becomes of it.
type step func(x *exchange, r *Rule, m *wire.Message) (*wire.Message, outcome)

type outcome int

const (
	forward outcome = iota // pass it on
	respond                // send it to the client: the server never sees the command
	silence                // drop it and all that follows on this connection
	hangUp                 // close the connection instead
	reset                  // close the connection by RST instead
)

func end(o outcome) step {
	return func(_ *exchange, _ *Rule, m *wire.Message) (*wire.Message, outcome) { return m, o }
}

// DropReply lets the server apply the command and closes the connection in place of the reply.
func DropReply() Action { return Action{reply: end(hangUp), late: true} }

// ResetReply is DropReply with a TCP reset.
func ResetReply() Action { return Action{reply: end(reset), late: true} }

// SwallowReply lets the server apply the command and then keeps the connection open and
// silent.
func SwallowReply() Action { return Action{reply: end(silence), late: true} }

// DropCommand closes the connection before the server sees the command.
func DropCommand() Action { return Action{command: end(hangUp)} }

// HalfOpen drops the command and everything after it on its connection, which stays open.
func HalfOpen() Action { return Action{command: end(silence)} }

// DelayCommand passes the command on after d, even if the client has given it up.
func DelayCommand(d time.Duration) Action { return Action{command: pause(d), late: true} }

// DelayReply passes the reply on after d.
func DelayReply(d time.Duration) Action { return Action{reply: pause(d), late: true} }

// Hold keeps the command until the rule's Release and passes it on then, even if the client
// has given it up: the command is applied late.
func Hold() Action { return Action{command: wait, late: true} }

// HoldReply lets the server apply the command and keeps the reply until the rule's Release.
func HoldReply() Action { return Action{reply: wait, late: true} }

// Orphan closes the client's side of the connection at once and keeps the command until the
// rule's Release: the driver's retry overtakes it.
func Orphan() Action {
	return Action{late: true, command: func(x *exchange, r *Rule, m *wire.Message) (*wire.Message, outcome) {
		_ = x.conn.client.Close()
		return wait(x, r, m)
	}}
}

func wait(x *exchange, r *Rule, m *wire.Message) (*wire.Message, outcome) {
	select {
	case <-r.released.ch:
		return m, forward
	case <-x.conn.ctx.Done():
		return m, reset
	}
}

func pause(d time.Duration) step {
	return func(x *exchange, r *Rule, m *wire.Message) (*wire.Message, outcome) {
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

// EditReply replaces the reply by f's result. The values that f gets are of type
// bson.RawValue; those that it returns may be anything that bson.Marshal accepts.
func EditReply(f func(reply bson.D) bson.D) Action {
	return Action{reply: func(_ *exchange, _ *Rule, m *wire.Message) (*wire.Message, outcome) {
		return edited(m, f), forward
	}}
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

// edited returns m with f applied to its body, or m itself if it has none.
func edited(m *wire.Message, f func(bson.D) bson.D) *wire.Message {
	elements, err := m.Body.Elements()
	if m.Body == nil || err != nil {
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
		panic("faultproxy: the result of an edit is not BSON: " + err.Error())
	}
	return m.WithBody(body)
}
