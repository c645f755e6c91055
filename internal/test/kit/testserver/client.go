package testserver

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Dialling returns a client's options for a busy machine. There a new connection's first
// hello was seen to go unanswered for ten seconds and more, once in some thousand clients.
// With these options the client soon tries another connection.
func Dialling(uri string) *options.ClientOptions {
	return options.Client().ApplyURI(uri).SetServerSelectionTimeout(30 * time.Second).SetConnectTimeout(4 * time.Second)
}

// Connect returns a client that is disconnected when the test ends.
func Connect(t testing.TB, uri string, opts ...func(*options.ClientOptions)) *mongo.Client {
	t.Helper()
	o := Dialling(uri)
	for _, opt := range opts {
		opt(o)
	}
	client, err := mongo.Connect(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = client.Disconnect(ctx) // the server may be gone
	})
	return client
}

// A Tap records the commands that clients send, except endSessions.
type Tap struct {
	mu   sync.Mutex // protects sent
	sent []bson.Raw
}

// On taps the client that is made with these options.
func (p *Tap) On(o *options.ClientOptions) {
	o.SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "endSessions" {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sent = append(p.sent, slices.Clone(e.Command))
	}})
}

// Take returns the commands that were sent since the last Take.
func (p *Tap) Take() []bson.Raw {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := p.sent
	p.sent = nil
	return sent
}

// TakeNames is Take for the names of the commands alone.
func (p *Tap) TakeNames() (names []string) {
	for _, command := range p.Take() {
		names = append(names, command.Index(0).Key())
	}
	return names
}

// Client connects a test to the server that all tests share.
func Client(t testing.TB, opts ...func(*options.ClientOptions)) *mongo.Client {
	t.Helper()
	return Connect(t, URI(t), opts...)
}

// Collection returns a new collection for locks. It is dropped after the test, together
// with its wake-ups.
func Collection(t testing.TB, client *mongo.Client) *mongo.Collection {
	t.Helper()
	coll := client.Database("mongolock_test").Collection("locks_" + rand.Text()[:10])
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = coll.Drop(ctx) // the server may be gone
		_ = coll.Database().Collection(coll.Name() + ".wake").Drop(ctx)
	})
	return coll
}
