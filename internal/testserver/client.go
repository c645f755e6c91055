package testserver

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Dialling are a client's options for a machine that is busy. There a new client's
// first hello was seen to go unanswered for ten seconds and more, once in some thousand
// clients: then it is given up for another.
func Dialling(uri string) *options.ClientOptions {
	return options.Client().ApplyURI(uri).SetServerSelectionTimeout(30 * time.Second).SetConnectTimeout(4 * time.Second)
}

// Connect is a client until the test is over.
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
		_ = client.Disconnect(ctx) // of a server that may be gone
	})
	return client
}

// A Tap keeps the commands that clients send, but for the driver's good-bye.
type Tap struct {
	mu   sync.Mutex // protects sent
	sent []bson.Raw
}

// On taps a client that is to be.
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

// Take answers what was sent since the last Take.
func (p *Tap) Take() []bson.Raw {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := p.sent
	p.sent = nil
	return sent
}

// TakeNames is Take for who wants the commands' names alone.
func (p *Tap) TakeNames() (names []string) {
	for _, command := range p.Take() {
		names = append(names, command.Index(0).Key())
	}
	return names
}
