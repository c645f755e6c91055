package trace

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/simulation"
	"github.com/mongolock/mongolock/store"
)

// The wake-ups are in a collection beside that of the keys. A key that lingers is kept only by a client that has read
// them without a gap since before its claim (design.md §4.9).
const wakeUps = locks + ".wake"

func isFeed(c *simulation.Command) bool {
	if c.Name == "getMore" {
		return c.DB+"."+c.Coll() == wakeUps
	}
	tails, _ := field(c.Body, "tailable").(bool)
	return tails && c.NS() == wakeUps
}

// feeds is what a client reads of the wake-ups: that it hears from now on, that it does not any more, that somebody
// waits for the key.
func (b *builder) feeds(s simulation.Step) {
	if !b.lingers {
		return
	}
	client, ok := s.Command.Client, succeeded(s.Reply)
	cursor, _ := field(s.Reply, "cursor").(bson.D)
	read, _ := s.Command.Body[0].Value.(int64)
	switch {
	case s.Command.Name == "getMore" && read != b.cursors[client]:
		// It reads another one by now.
	case !ok:
		b.step(s.At, first, fmt.Sprintf("client %d has lost its feed", client), `"deaf", %d`, client)
	case s.Command.Name == "find":
		b.cursors[client] = number(field(cursor, "id"))
		b.step(s.At, first, fmt.Sprintf("client %d has opened its feed", client), `"hears", %d`, client)
	case wanted(cursor, b.key):
		free := !hindered(b.run, client, s.At, s.At+soon)
		b.step(s.At, first, fmt.Sprintf("client %d hears that somebody waits", client), `"asked", %d, %s`, client, boolean(free))
	}
}

// soon is how soon a client frees a key that it keeps for nobody: LockTrace.tla has it too.
const soon = time.Second

// wanted reports whether there is a notice in what a cursor read that somebody waits for a key.
func wanted(cursor bson.D, key string) bool {
	return slices.ContainsFunc(documents(field(cursor, "nextBatch")), func(d bson.D) bool {
		return field(d, "topic") == store.TopicLocks && field(d, "kind") == store.KindWanted && field(d, "key") == key
	})
}
