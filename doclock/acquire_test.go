package doclock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/testserver"
	"github.com/mongolock/mongolock/store"
)

func TestAnAcquireReturnsTheDocumentAsItStood(t *testing.T) {
	coll := collection(t)
	put(t, coll, bson.D{{Key: "_id", Value: "o-1"}, {Key: "state", Value: "new"}, {Key: "total", Value: 42}})
	locks := locksOn[order](t, coll)
	doc := must(locks.Acquire(t.Context(), ID("o-1")))(t)
	if doc.Value != (order{"o-1", "new", 42}) {
		t.Errorf("got %+v", doc.Value)
	}
	if doc.Lease().Token() <= 0 || doc.Lease().Err() != nil || doc.Lease().Remaining() <= 0 {
		t.Errorf("the lease: token %d, %v, %v", doc.Lease().Token(), doc.Lease().Err(), doc.Lease().Remaining())
	}
	if lock := readLock(get(t, coll, "o-1"), "lock"); lock.id != doc.Lease().ID() || lock.expireAt.IsZero() {
		t.Errorf("the document has %+v", lock)
	}
	_, err := locks.TryAcquire(t.Context(), ID("o-1"))
	held, ok := errors.AsType[*mongolock.HeldError](err)
	if !ok || held.Holders[0].ID != doc.Lease().ID() || held.Left() <= 0 {
		t.Errorf("the second got %v", err)
	}
	if err := doc.Release(); err != nil {
		t.Fatal(err)
	}
	if raw := get(t, coll, "o-1"); !raw.Lookup("lock").IsZero() {
		t.Errorf("after the release it is %v", raw)
	}
}

func TestEachStepIsOneCommand(t *testing.T) {
	needs(t, "atomic") // the embedded server has no operationTime: a claim takes one more there
	var p testserver.Tap
	coll := collection(t, p.On)
	locks := locksOn[order](t, coll)
	put(t, coll, order{ID: "o"})
	must(locks.TryAcquire(t.Context(), ID("o")))(t).Release() // and with it, hello
	p.TakeNames()
	expect := func(step string, want ...string) {
		t.Helper()
		if got := p.TakeNames(); !slices.Equal(got, want) {
			t.Errorf("%s: sent %v", step, got)
		}
	}
	doc := must(locks.Acquire(t.Context(), ID("o")))(t)
	expect("acquire", "findAndModify")
	doc.Value.State = "paid"
	if err := doc.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("save", "findAndModify")
	if err := doc.Lease().Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("renew", "findAndModify")
	doc.Value.State = "sent"
	if err := doc.SaveAndRelease(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("save and release", "findAndModify")
	must(locks.TryAcquire(t.Context(), ID("o")))(t).Release()
	expect("acquire, release", "findAndModify", "findAndModify")
	must(locks.TryAcquireOrCreate(t.Context(), ID("o-2"), order{State: "new"}))(t).Release()
	expect("create, release", "findAndModify", "findAndModify")
}

// Not one by one: a worker that was away for long may have lost a thousand.
func TestHoweverManyDocumentsAreGoneTwoFindsTellIt(t *testing.T) {
	var p testserver.Tap
	s := must(newDocStore(collection(t, p.On), "lock"))(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	batch := make([]store.Renewal, 50)
	for i := range batch {
		batch[i] = store.Renewal{Ref: store.Ref{Key: toKey(fmt.Sprint("gone-", i)), ID: fmt.Sprint(i), Mode: store.Exclusive}, TTL: time.Minute}
	}
	for i, a := range s.Renew(ctx, batch) {
		if !errors.Is(a.Err, store.ErrGone) {
			t.Errorf("document %d: %v", i, a.Err)
		}
	}
	finds := slices.DeleteFunc(p.TakeNames(), func(name string) bool { return name != "find" })
	if len(finds) != 2 {
		t.Errorf("%d finds", len(finds))
	}
}

func TestWhatIsMissingIsNotFoundAndNotHeld(t *testing.T) {
	locks := locksOn[order](t, collection(t))
	for name, acquire := range map[string]func(context.Context, any, ...mongolock.AcquireOption) (*Document[order], error){
		"Acquire": locks.Acquire, "TryAcquire": locks.TryAcquire,
	} {
		_, err := acquire(t.Context(), ID("nobody"))
		if !errors.Is(err, ErrNotFound) || errors.Is(err, mongolock.ErrHeld) || !strings.Contains(err.Error(), "nobody") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAWaiterLearnsThatItsDocumentWasRemoved(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o"})
	doc := must(locksOn[order](t, coll).Acquire(t.Context(), ID("o")))(t)
	failed := make(chan error)
	go func() {
		_, err := locksOn[order](t, coll).Acquire(t.Context(), ID("o"))
		failed <- err
	}()
	for readLock(get(t, coll, "o"), "lock").wanted.IsZero() {
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := coll.DeleteOne(t.Context(), ID("o")); err != nil {
		t.Fatal(err)
	}
	if err := doc.Release(); !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("the holder's release: %v", err)
	}
	// Nobody woke it: it finds out by its next look.
	_ = locksOn[order](t, coll).store.Notify(t.Context(), freed(doc))
	if err := <-failed; !errors.Is(err, ErrNotFound) {
		t.Errorf("the waiter got %v", err)
	}
}

func TestADocumentIsCreatedLockedAndOnce(t *testing.T) {
	needs(t, "atomic")
	coll := collection(t)
	const rivals = 8
	granted := make(chan *Document[order], rivals)
	refused := make(chan error, rivals)
	for range rivals {
		locks := locksOn[order](t, coll)
		go func() {
			doc, err := locks.TryAcquireOrCreate(t.Context(), ID("o"), order{State: "new", Total: 7})
			if err != nil {
				refused <- err
				return
			}
			granted <- doc
		}()
	}
	doc := <-granted
	for range rivals - 1 {
		if err := <-refused; !errors.Is(err, mongolock.ErrHeld) {
			t.Errorf("a rival got %v", err)
		}
	}
	if doc.Value != (order{"o", "new", 7}) {
		t.Errorf("created %+v", doc.Value)
	}
	doc.Value.State = "paid"
	if err := doc.SaveAndRelease(t.Context()); err != nil {
		t.Fatal(err)
	}
	doc = must(locksOn[order](t, coll).TryAcquireOrCreate(t.Context(), ID("o"), order{State: "new"}))(t)
	if doc.Value.State != "paid" {
		t.Errorf("one that is there was overwritten: %+v", doc.Value)
	}
}

type saga struct {
	Tenant string `bson:"tenant"`
	Key    string `bson:"key"`
	Type   string `bson:"type"`
	Step   int    `bson:"step"`
}

func sagas(t *testing.T, opts ...func(*options.ClientOptions)) *mongo.Collection {
	coll := collection(t, opts...)
	_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{
		Keys: bson.D{{Key: "key", Value: 1}, {Key: "type", Value: 1}}, Options: options.Index().SetUnique(true),
	})
	if err != nil {
		t.Skipf("needs a unique index: %v", err)
	}
	return coll
}

func TestTheSameKeyOfAnotherTypeIsAnotherLock(t *testing.T) {
	coll := sagas(t)
	locks := locksOn[saga](t, coll)
	of := func(kind string) bson.M { return bson.M{"type": kind, "key": "17"} }
	one := must(locks.TryAcquireOrCreate(t.Context(), of("order"), saga{Step: 1}))(t)
	two := must(locks.TryAcquireOrCreate(t.Context(), of("invoice"), saga{Step: 2}))(t)
	if one.Value.Step != 1 || two.Value.Step != 2 || one.Value.Type != "order" || two.Value.Key != "17" {
		t.Errorf("got %+v and %+v", one.Value, two.Value)
	}
	if _, err := locks.TryAcquire(t.Context(), bson.D{{Key: "key", Value: "17"}, {Key: "type", Value: "order"}}); !errors.Is(err, mongolock.ErrHeld) {
		t.Errorf("the fields in another order: %v", err)
	}
	if _, err := locks.TryAcquire(t.Context(), of("refund")); !errors.Is(err, ErrNotFound) {
		t.Errorf("a third type: %v", err)
	}
}

func TestTwoFieldsAreTwoLocksOnOneDocument(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o"})
	must(locksOn[order](t, coll).TryAcquire(t.Context(), ID("o")))(t)
	must(locksOn[bson.M](t, coll, Field("audit")).TryAcquire(t.Context(), ID("o")))(t)
}

func TestAFilterThatMatchesSeveralIsRefusedAndTheyAreUntouched(t *testing.T) {
	coll := collection(t)
	docs := []any{saga{Tenant: "a", Key: "17"}, saga{Tenant: "b", Key: "17"}, saga{Tenant: "b", Key: "18"}}
	put(t, coll, docs...)
	before := contents(t, coll)
	locks := locksOn[saga](t, coll)
	for _, acquire := range []func(context.Context, any, ...mongolock.AcquireOption) (*Document[saga], error){locks.Acquire, locks.TryAcquire} {
		if _, err := acquire(t.Context(), bson.M{"key": "17"}); !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), "several") {
			t.Errorf("got %v", err)
		}
	}
	if _, err := locks.TryAcquireOrCreate(t.Context(), bson.M{"key": "18"}, saga{}); !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), "unique index") {
		t.Errorf("creating without a unique index: %v", err)
	}
	if after := contents(t, coll); after != before {
		t.Errorf("the documents were\n%s\nand are\n%s", before, after)
	}
	// The one that there is can be locked all the same.
	doc := must(locks.TryAcquire(t.Context(), bson.M{"key": "18"}))(t)
	if _, err := locks.TryAcquire(t.Context(), ID(doc.ID())); !errors.Is(err, mongolock.ErrHeld) {
		t.Errorf("by its _id: %v", err)
	}
}

func TestAValueThatDoesNotDecodeIsGivenBackAsItWas(t *testing.T) {
	coll := collection(t)
	put(t, coll, bson.D{{Key: "_id", Value: "o"}, {Key: "state", Value: bson.A{1, 2}}})
	before := contents(t, coll)
	locks := locksOn[order](t, coll)
	if _, err := locks.TryAcquire(t.Context(), ID("o")); !errors.Is(err, ErrDecode) || !strings.Contains(err.Error(), `"o"`) {
		t.Errorf("got %v", err)
	}
	if after := contents(t, coll); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	must(locksOn[bson.M](t, coll).TryAcquire(t.Context(), ID("o")))(t)
}

func TestAFieldOfTheApplicationsOwnIsNotTakenForALock(t *testing.T) {
	coll := collection(t)
	for i, s := range strangers {
		put(t, coll, append(ID(i), s...))
	}
	before := contents(t, coll)
	locks := locksOn[bson.M](t, coll)
	for i := range strangers {
		for _, acquire := range []func() error{
			func() error { _, err := locks.TryAcquire(t.Context(), ID(i)); return err },
			func() error { _, err := locks.Acquire(t.Context(), ID(i)); return err },
			func() error { _, err := locks.TryAcquireOrCreate(t.Context(), ID(i), bson.M{"x": 1}); return err },
		} {
			if err := acquire(); !errors.Is(err, mongolock.ErrForeign) || !strings.Contains(err.Error(), "field lock") {
				t.Errorf("%v: %v", strangers[i], err)
			}
		}
	}
	if _, err := locks.TryClaim(t.Context(), bson.M{}, nil); !errors.Is(err, mongolock.ErrForeign) {
		t.Errorf("a claim: %v", err)
	}
	if after := contents(t, coll); after != before {
		t.Errorf("the documents were\n%s\nand are\n%s", before, after)
	}
}

// The control: a filter that does not ask what the field holds overwrites it.
func TestControlWithoutTheMarkTheApplicationsFieldIsOverwritten(t *testing.T) {
	coll := collection(t)
	put(t, coll, bson.D{{Key: "_id", Value: 1}, {Key: "lock", Value: bson.D{{Key: "by", Value: "the application"}}}})
	before := contents(t, coll)
	locks := locksOn[bson.M](t, coll)
	locks.store.broken.anyLock = true
	_, err := locks.TryAcquire(t.Context(), ID(1))
	if contents(t, coll) == before {
		t.Errorf("left alone all the same (%v): the mark is not what protects", err)
	}
}

func contents(t testing.TB, coll *mongo.Collection) string {
	t.Helper()
	cursor, err := coll.Find(context.Background(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	var all []bson.Raw
	if err := cursor.All(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, raw := range all {
		lines = append(lines, raw.String())
	}
	return strings.Join(lines, "\n")
}
