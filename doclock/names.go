package doclock

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/swept"
	"github.com/mongolock/mongolock/store"
)

// freedNames holds the documents that were freed lately under another name than their _id: by
// the fields of a unique index. Waiters wait under the _id, which a refused claim learns. So
// that is where a notice must go.
type freedNames struct {
	mu   sync.Mutex // protects keys
	keys swept.Map[string, freedName]
}

type freedName struct {
	key string // of the document's _id
	at  time.Time
}

// freedFor is how long a name is remembered: the notice follows the release at once.
const freedFor = time.Minute

// add records that the document with this _id was freed under this key. A value without a type
// says that no document was.
func (f *freedNames) add(key string, document bson.RawValue) {
	if isID(key) || document.IsZero() {
		return
	}
	id, err := keyOfID(document)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.keys.Put(key, freedName{id, now}, func(_ string, name freedName) bool { return now.Sub(name.at) > freedFor })
}

// of returns the key under which waiters for the document wait.
func (f *freedNames) of(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name, ok := f.keys.All[key]; ok {
		return name.key
	}
	return key
}

// Notify sends notices. Those of the line of a document use the name that waiters know.
func (s *docStore) Notify(ctx context.Context, all ...store.Notice) error {
	all = slices.Clone(all)
	for i, n := range all {
		if n.Topic == store.TopicLocks && !isID(n.Key) {
			all[i].Key = s.awaitedAs(n.Key)
		}
	}
	return s.Feed.Notify(ctx, all...)
}

// awaitedAs returns the key under which waiters wait for the document that this process holds
// under a key, or has freed lately. A notice may go beside the release.
func (s *docStore) awaitedAs(key string) string {
	if doc := s.heldAs(key); !doc.IsZero() {
		if id, err := keyOfID(doc); err == nil {
			return id
		}
	}
	return s.freed.of(key)
}

// heldAs returns the _id of a document that this process holds under a key.
func (s *docStore) heldAs(key string) bson.RawValue {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	for _, g := range s.memory.leases.All {
		if g.key == key {
			return g.doc
		}
	}
	return bson.RawValue{}
}
