package doclock

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside/above"
	"github.com/mongolock/mongolock/store"
)

// Package returns the package whose operations observers see.
func (*docStore) Package() string { return "doclock" }

// Stats returns the numbers of this process's locks on the documents. Claims that wait for work
// do not count as waiters: each of their attempts is a TryAcquire.
func (l *Locks[T]) Stats() mongolock.Stats { return l.client.Stats() }

func init() {
	above.Engine = func(locks any) any { return locks.(interface{ engine() *mongolock.Client }).engine() }
	above.Decode = func(locks, document any) (any, error) {
		return locks.(interface{ decode(bson.Raw) (any, error) }).decode(document.(bson.Raw))
	}
}

func (l *Locks[T]) decode(document bson.Raw) (any, error) { return l.codec.decode(document) }

func (l *Locks[T]) engine() *mongolock.Client { return l.client }

// A missed refuses the claim of one of many documents. Observers see it as held.
type missed struct{}

func (*missed) Error() string        { return "doclock: another claim was quicker" }
func (*missed) Is(target error) bool { return target == store.ErrHeld }
