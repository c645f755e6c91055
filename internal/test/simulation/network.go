package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/internal/test/mongo/wire"
)

var errReset = errors.New("connection reset by peer")

// A request is one command on its way.
type request struct {
	sent       time.Duration
	began      time.Duration // when its sender began with it, or with an earlier send of the same
	client     *process
	actor      string
	op         int    // the user's call that it belongs to
	name       string // for the log
	cmd        docdb.Command
	member     *member
	epoch      int
	delivery   delivery
	obeysLimit bool // the server ends it when its time limit is over
	message    *wire.Message
	recorded   *Command     // nil for a part of another command
	routed     bool         // by a router, which answers instead of breaking the connection
	tries      int          // of the router
	done       func(bson.D) // takes the reply of a part of a command; nil: it goes to the client
	answer     chan []byte  // of capacity 1
	broken     chan error   // of capacity 1
}

// A conn is a connection that is used for one operation.
type conn struct {
	client *process
	member *member
	epoch  int
	began  time.Duration
	flight *request
}

type actorKey struct{}

// Write sends a command.
func (c *conn) Write(ctx context.Context, wm []byte) error {
	message, err := wire.Parse(wm)
	if err != nil {
		return err
	}
	body, err := message.Document()
	if err != nil {
		return err
	}
	cmd, err := docdb.Parse(body)
	if err != nil {
		return err
	}
	actor, _ := ctx.Value(actorKey{}).(string)
	op, _ := ctx.Value(opKey{}).(int)
	w := c.client.world
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &request{
		client: c.client, actor: actor, op: op, cmd: cmd, member: c.member, epoch: c.epoch, began: c.began, message: message,
		answer: make(chan []byte, 1), broken: make(chan error, 1),
	}
	c.flight = r
	if c.client.dead || w.closed {
		return nil // it never arrives
	}
	w.send(r)
	return nil
}

// send sends a command, as its delivery says. With w.mu held.
func (w *world) send(r *request) {
	w.sends++
	r.sent = w.since()
	if r.cmd.Number > 0 {
		numbered := r.numbered()
		if first, again := w.began[numbered]; again {
			r.began = first
		}
		w.began[numbered] = r.began
	}
	who := fmt.Sprintf("%d %s %s %s", r.client.id, r.actor, r.cmd.Name, key(r.cmd))
	w.sent[who]++
	d := w.rng(fmt.Sprintf("%s %d", who, w.sent[who]))
	r.name = fmt.Sprintf("client %s #%d%s", who, w.sent[who], w.session(r.cmd, who, w.sent[who]))
	r.delivery = w.deliver(r, d)
	r.obeysLimit = d.chance(500)
	w.logf("%s to server %d: %s", r.name, r.member.id, r.delivery)
	w.recordSent(r)
	if until, trouble := r.trouble(); trouble {
		w.noteLocked(history.Event{Kind: history.Trouble, Client: r.client.id, Key: key(r.cmd), Until: w.since() + until, Note: r.cmd.Name + ": " + r.delivery.String()})
	}
	if r.delivery.out >= 0 {
		w.after(r.delivery.out, func() { w.arrive(r) })
	}
	if r.delivery.reset > 0 {
		w.after(r.delivery.reset, func() { r.breakOff(errReset) })
	}
}

// session names the session of a numbered command by the first such command, which is the same in
// every run. A session without a number decides nothing: which of two commands of one instant
// drew it from the driver's pool is not history.
func (w *world) session(c docdb.Command, who string, n int) string {
	if c.Session == "" || c.Number == 0 {
		return ""
	}
	name, ok := w.names[c.Session]
	if !ok {
		name = fmt.Sprintf("%s #%d", who, n)
		w.names[c.Session] = name
	}
	return fmt.Sprintf(" (number %d of the session of %s)", c.Number, name)
}

// key returns the key that a command is about, if it names one.
func key(c docdb.Command) string {
	for _, e := range c.Body {
		switch e.Key {
		case "query", "filter":
			if d, ok := e.Value.(bson.D); ok && len(d) > 0 && d[0].Key == "_id" {
				return fmt.Sprint(d[0].Value)
			}
		case "documents":
			if a, ok := e.Value.(bson.A); ok && len(a) > 0 {
				for _, f := range a[0].(bson.D) {
					if f.Key == "key" {
						return fmt.Sprint(f.Value)
					}
				}
			}
		}
	}
	return ""
}

// respond sends a reply back. With w.mu held.
func (w *world) respond(r *request, reply bson.D) {
	if r.done != nil {
		r.done(reply)
		return
	}
	if r.routed {
		if t, ok := lookup(reply, "$clusterTime").(bson.D); ok {
			router := w.routers[r.client.id]
			if now := t[0].Value.(bson.Timestamp); now.After(router.heard) {
				router.heard = now
			}
		}
	}
	if r.delivery.back < 0 {
		return
	}
	raw, err := bson.Marshal(reply)
	if err != nil {
		panic(err)
	}
	w.after(r.delivery.back, func() {
		if r.client.dead || w.isCutOff(r.client.id) {
			return
		}
		w.logf("%s is answered%s", r.name, verdict(reply))
		w.recordAnswered(r, reply)
		w.noteRefusal(r, reply)
		select {
		case r.answer <- raw:
		default:
		}
	})
}

// numbered names a command for all its sends, of which the server executes one.
func (r *request) numbered() string { return fmt.Sprint(r.cmd.Session, " ", r.cmd.Number) }

// noteRefusal notes that a claim of one of several keys was refused, before its client takes that for
// slow. The call that it belongs to may go on. With w.mu held.
func (w *world) noteRefusal(r *request, reply bson.D) {
	_, several := w.together[r.op]
	if several && r.cmd.Number > 0 && lookup(reply, "code") == int32(11000) && w.since()-r.began < history.QuickRefusal {
		w.refused[r.numbered()] = w.since()
	}
}

// verdict returns what the log says of a reply.
func verdict(reply bson.D) (s string) {
	for _, e := range reply {
		switch e.Key {
		case "code", "writeErrors", "n":
			s += fmt.Sprintf(" %s: %v", e.Key, e.Value)
		case "lastErrorObject":
			s += fmt.Sprintf(" n: %v", e.Value.(bson.D)[0].Value)
		}
	}
	return s
}

// fail tells a request's sender that the connection to its server broke: a router makes an
// ordinary reply of it. With w.mu held.
func (r *request) fail(err error) {
	if r.routed {
		r.client.world.respond(r, errUnreachable.reply())
		return
	}
	r.breakOff(err)
}

// breakOff breaks the connection under a request. With w.mu held.
func (r *request) breakOff(err error) {
	if r.client.dead {
		return
	}
	select {
	case r.broken <- err:
	default:
	}
}

// Read waits for the reply.
func (c *conn) Read(ctx context.Context) ([]byte, error) {
	r := c.flight
	select {
	case raw := <-r.answer:
		return r.message.Answer(1, raw).Raw, nil
	case err := <-r.broken:
		return nil, err
	case <-ctx.Done():
		return nil, fmt.Errorf("read: %w", ctx.Err())
	}
}

func (c *conn) Close() error                    { return nil }
func (c *conn) ID() string                      { return "sim" }
func (c *conn) ServerConnectionID() *int64      { return nil }
func (c *conn) DriverConnectionID() int64       { return 1 }
func (c *conn) Address() address.Address        { return c.member.address() }
func (c *conn) Stale() bool                     { return false }
func (c *conn) OIDCTokenGenID() uint64          { return 0 }
func (c *conn) SetOIDCTokenGenID(uint64)        {}
func (c *conn) Description() description.Server { return c.member.description() }

// lookAgain is how long a driver waits before it looks for a primary again.
func lookAgain(d *rng) time.Duration { return d.between(5*time.Millisecond, 500*time.Millisecond) }
