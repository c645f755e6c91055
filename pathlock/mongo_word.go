package pathlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/mongo/server"
)

// The word of a tree says that a process waits. Each look of a Lock reads it along
// with the locks. A process's knowledge of it is at most wordFresh old. So all writing
// processes know a new word once it has stood for wordSettled.
const (
	wordFor     = time.Minute // how long it lasts
	wordFresh   = time.Second
	wordSettled = wordFresh + 200*time.Millisecond
)

// A word says until when there may be waiters, and what exclusive ones reserve.
type word struct {
	waited   time.Time
	reserved []reservation
}

// A knownWord is the word as a process last read it.
type knownWord struct {
	mu   sync.Mutex // protects the rest
	word word
	sent server.Moment // of the command that read it; 0: none did
}

func (k *knownWord) learn(w word, sent server.Moment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if sent >= k.sent {
		k.word, k.sent = w, sent
	}
}

// fresh returns the word, if it was read recently.
func (k *knownWord) fresh(now server.Moment) (word, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.word, k.sent != 0 && now.Sub(k.sent) <= wordFresh
}

// standing returns the tree's word, and reads it if what is known is old.
func (m *mongoTree) standing(ctx context.Context) (word, error) {
	if w, fresh := m.fresh(m.base.Clock.Now()); fresh {
		return w, nil
	}
	r, err := m.base.Find(ctx, bson.D{{Key: "_id", Value: m.name}})
	if err != nil {
		return word{}, err
	}
	w, err := m.readWord(r.Image)
	if err == nil {
		m.learn(w, r.Sent)
	}
	return w, err
}

// awaited is called after a write. A waiter whose word it does not find looks after that, and sees the
// write, unless the word was read before the write: a waiter allows for that until wordSettled.
func (m *mongoTree) awaited(ctx context.Context) bool {
	w, err := m.standing(server.Bare(ctx))
	return err != nil || w.waited.After(m.lately().Earliest)
}

// readWord refuses a document under the tree's name that this version did not write.
func (m *mongoTree) readWord(raw bson.Raw) (w word, err error) {
	if raw == nil {
		return w, nil
	}
	mark := raw.Lookup(fieldVersion)
	tree, _ := raw.Lookup(fieldTree).StringValueOK()
	switch {
	case mark.IsZero():
		return w, fmt.Errorf("%w: the document %q has no %q", ErrForeign, m.name, fieldVersion)
	case !server.Is(mark, mongoVersion):
		return w, fmt.Errorf("%w: in the document %q %q is %v, not %d", ErrForeign, m.name, fieldVersion, mark, mongoVersion)
	case tree != m.name:
		return w, fmt.Errorf("%w: the document %q is marked as ours, and is not", ErrForeign, m.name)
	}
	w.waited, _ = server.Time(raw.Lookup(fieldWaited))
	w.reserved = readReserved(raw.Lookup(fieldReserved))
	return w, nil
}

// readReserved leaves out what it does not understand: no safety depends on it.
func readReserved(v bson.RawValue) (all []reservation) {
	entries, _ := v.DocumentOK()
	elements, _ := entries.Elements()
	for _, e := range elements {
		entry, _ := e.Value().DocumentOK()
		path, _ := entry.Lookup(fieldPath).StringValueOK()
		depth, _ := entry.Lookup(fieldDepth).StringValueOK()
		until, ok := server.Time(entry.Lookup(fieldUntil))
		if clean, err := Clean(path); ok && err == nil && clean == path {
			all = append(all, reservation{ID: e.Key(), Path: path, Depth: Depth(depth), Until: until})
		}
	}
	return all
}

// leaveWord writes the word of a waiter, and returns it. With it goes the waiter's reservation, if
// that is not nil, in place of those that are of no use.
func (m *mongoTree) leaveWord(ctx context.Context, mine *reservation, useless ...string) (w word, err error) {
	now, err := m.base.Read(ctx)
	if err != nil {
		return w, err
	}
	set, unset := bson.D{{Key: fieldOn, Value: wordNumber(m.name)}}, bson.D{}
	if mine != nil {
		set = append(set, bson.E{Key: reservedBy(mine.ID), Value: bson.D{
			{Key: fieldPath, Value: mine.Path}, {Key: fieldDepth, Value: string(mine.Depth)}, {Key: fieldUntil, Value: mine.Until},
		}})
		for _, id := range useless {
			unset = append(unset, bson.E{Key: reservedBy(id), Value: ""})
		}
	}
	update := bson.D{
		{Key: "$set", Value: set},
		{Key: "$max", Value: bson.D{{Key: fieldWaited, Value: server.Ceil(now.Latest.Add(wordFor))}}},
		{Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}}},
	}
	if len(unset) > 0 {
		update = append(update, bson.E{Key: "$unset", Value: unset})
	}
	write := func() (server.Reply, error) {
		return m.base.Modify(ctx, m.base.W1, m.ownWord(), update, server.Upsert)
	}
	r, err := write()
	if server.ClassOf(err) == server.DuplicateID { // the document is a stranger's, or another process was quicker
		seen, err := m.base.Find(ctx, bson.D{{Key: "_id", Value: m.name}})
		if err != nil {
			return w, err
		}
		if _, err := m.readWord(seen.Image); err != nil {
			return w, err
		}
		if r, err = write(); err != nil {
			return w, err
		}
	} else if err != nil {
		return w, err
	}
	at, _ := server.Time(r.Image.Lookup(fieldAt))
	m.base.Timed(at, r.Sent)
	w, err = m.readWord(r.Image)
	if err == nil {
		m.learn(w, r.Sent)
	}
	return w, err
}

// ownWord is the filter for the document with the word.
func (m *mongoTree) ownWord() bson.D {
	return bson.D{{Key: "_id", Value: m.name}, {Key: fieldVersion, Value: mongoVersion}, {Key: fieldTree, Value: m.name}}
}

func reservedBy(id string) string { return fieldReserved + "." + id }

// unreserve removes a waiter's reservation.
func (m *mongoTree) unreserve(ctx context.Context, id string) outcome {
	_, err := m.base.Modify(server.Bare(ctx), m.base.W1, m.ownWord(), bson.D{
		{Key: "$unset", Value: bson.D{{Key: reservedBy(id), Value: ""}}},
		{Key: "$currentDate", Value: bson.D{{Key: fieldAt, Value: true}}},
	}, onlyAt())
	return outcome{fault: server.Classified(err), changed: true}
}
