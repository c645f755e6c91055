package doclock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
)

func TestASaveWritesWhatChangedAndKeepsTheLock(t *testing.T) {
	coll := collection(t)
	put(t, coll, bson.D{{Key: "_id", Value: "o"}, {Key: "state", Value: "new"}, {Key: "total", Value: 3}, {Key: "other", Value: "theirs"}})
	locks := locksOn[order](t, coll)
	doc := must(locks.Acquire(t.Context(), ID("o")))(t)
	doc.Value.State, doc.Value.Total = "paid", 0 // omitempty: the field goes
	if err := doc.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	raw := get(t, coll, "o")
	if raw.Lookup("state").StringValue() != "paid" || !raw.Lookup("total").IsZero() || raw.Lookup("other").StringValue() != "theirs" {
		t.Errorf("saved %v", raw)
	}
	if readLock(raw, "lock").id != doc.Lease().ID() {
		t.Error("the save freed it")
	}
	doc.Value.ID = "another"
	if err := doc.Save(t.Context()); err == nil || !strings.Contains(err.Error(), "_id") {
		t.Errorf("another _id: %v", err)
	}
}

// looks has a document go through many holders, each of whom makes its number odd
// first and then, as it frees it, even and marked with its own lease. It answers how
// many looks saw half of that: an odd number free, or a mark whose lease is still
// there.
func looks(t *testing.T, free func(context.Context, *Document[bson.M]) error) (half int64) {
	coll := collection(t)
	put(t, coll, bson.M{"_id": "o", "n": int32(0)})
	done := make(chan struct{})
	var wrong atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				raw := get(t, coll, "o")
				by, _ := raw.Lookup("by").StringValueOK()
				holder := readLock(raw, "lock").id
				if raw.Lookup("n").Int32()%2 == 1 && holder == "" || by != "" && by == holder {
					wrong.Add(1)
				}
			}
		})
	}
	locks := locksOn[bson.M](t, coll)
	for range 60 {
		doc := must(locks.Acquire(t.Context(), ID("o")))(t)
		doc.Value["n"] = doc.Value["n"].(int32) + 1
		if err := doc.Save(t.Context()); err != nil {
			t.Fatal(err)
		}
		doc.Value["n"] = doc.Value["n"].(int32) + 1
		doc.Value["by"] = doc.Lease().ID()
		if err := free(t.Context(), doc); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	wg.Wait()
	return wrong.Load()
}

func TestNobodySeesTheNewValueLockedNorTheOldOneFree(t *testing.T) {
	needs(t, "atomic")
	if half := looks(t, func(ctx context.Context, d *Document[bson.M]) error { return d.SaveAndRelease(ctx) }); half > 0 {
		t.Errorf("%d looks saw half of it", half)
	}
}

// The control: in two steps it is seen.
func TestControlSaveAndReleaseInTwoStepsAreSeen(t *testing.T) {
	needs(t, "atomic")
	if half := looks(t, func(ctx context.Context, d *Document[bson.M]) error {
		return errors.Join(d.Save(ctx), d.Release())
	}); half == 0 {
		t.Error("not seen: the looks show nothing")
	}
}

func TestASaveAfterTheLeaseWasLostWritesNothing(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *mongo.Collection, *Document[order]){
		"taken over": func(t *testing.T, coll *mongo.Collection, d *Document[order]) {
			expire(t, coll, "o")
			must(locksOn[order](t, coll).TryAcquire(t.Context(), ID("o")))(t)
		},
		"run out": func(t *testing.T, coll *mongo.Collection, d *Document[order]) { expire(t, coll, "o") },
		"removed by hand": func(t *testing.T, coll *mongo.Collection, d *Document[order]) {
			_, err := coll.UpdateOne(t.Context(), ID("o"), bson.M{"$unset": bson.M{"lock": ""}})
			if err != nil {
				t.Fatal(err)
			}
		},
		"broken": func(t *testing.T, coll *mongo.Collection, d *Document[order]) {
			if err := d.locks.store.Break(t.Context(), d.ref(), "because", false); err != nil {
				t.Fatal(err)
			}
		},
		"the document is gone": func(t *testing.T, coll *mongo.Collection, d *Document[order]) {
			if _, err := coll.DeleteOne(t.Context(), ID("o")); err != nil {
				t.Fatal(err)
			}
		},
		"and known to be": func(t *testing.T, coll *mongo.Collection, d *Document[order]) {
			expire(t, coll, "o")
			_ = d.Lease().Renew(t.Context())
			<-d.Lease().Done()
		},
	} {
		for how, save := range map[string]func(*Document[order]) error{
			"Save":           func(d *Document[order]) error { return d.Save(context.Background()) },
			"SaveAndRelease": func(d *Document[order]) error { return d.SaveAndRelease(context.Background()) },
			"Complete":       func(d *Document[order]) error { return (&Claimed[order]{d}).Complete(context.Background()) },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				coll := collection(t)
				put(t, coll, order{ID: "o", State: "new"})
				doc := must(locksOn[order](t, coll).Acquire(t.Context(), ID("o")))(t)
				lose(t, coll, doc)
				doc.Value.State = "late"
				err := save(doc)
				if !errors.Is(err, mongolock.ErrLost) || errors.Is(err, mongolock.ErrOutcomeUnknown) {
					t.Errorf("got %v", err)
				}
				if name == "the document is gone" {
					return
				}
				if state := get(t, coll, "o").Lookup("state").StringValue(); state != "new" {
					t.Errorf("it wrote %q", state)
				}
			})
		}
	}
}

// The control: a save that does not name the acquisition writes over the next one's.
func TestControlASaveByKeyAloneWritesAfterTheLoss(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	locks := locksOn[order](t, coll)
	doc := must(locks.Acquire(t.Context(), ID("o")))(t)
	expire(t, coll, "o")
	must(locksOn[order](t, coll).TryAcquire(t.Context(), ID("o")))(t)
	locks.store.broken.byKeyAlone = true
	doc.Value.State = "late"
	err := doc.Save(t.Context())
	if state := get(t, coll, "o").Lookup("state").StringValue(); state != "late" {
		t.Errorf("nothing was written all the same (%v): naming it is not what protects", err)
	}
}

func TestAReleaseFreesNobodyElses(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o"})
	doc := must(locksOn[order](t, coll).Acquire(t.Context(), ID("o")))(t)
	expire(t, coll, "o")
	next := must(locksOn[order](t, coll).TryAcquire(t.Context(), ID("o")))(t)
	if err := doc.Release(); !errors.Is(err, mongolock.ErrLost) {
		t.Errorf("the release of what was lost: %v", err)
	}
	if readLock(get(t, coll, "o"), "lock").id != next.Lease().ID() {
		t.Error("it freed the next one's")
	}
	if next.Lease().Token() <= doc.Lease().Token() {
		t.Errorf("token %d after %d", next.Lease().Token(), doc.Lease().Token())
	}
}

func TestAReleasedDocumentGoesToTheWaiterWithWhatWasSaved(t *testing.T) {
	coll := collection(t)
	put(t, coll, order{ID: "o", State: "new"})
	mine := locksOn[order](t, coll)
	for name, theirs := range map[string]*Locks[order]{"of this process": mine, "of another": locksOn[order](t, coll)} {
		doc := must(mine.Acquire(t.Context(), ID("o")))(t)
		next := make(chan *Document[order])
		go func() {
			d, err := theirs.Acquire(t.Context(), ID("o"))
			if err != nil {
				t.Error(err)
			}
			next <- d
		}()
		time.Sleep(100 * time.Millisecond)
		doc.Value.State = name
		if err := doc.SaveAndRelease(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := <-next
		if got == nil || got.Value.State != name {
			t.Fatalf("the waiter %s got %+v", name, got)
		}
		got.Release()
	}
}

func TestASaveInATransactionGoesWithIt(t *testing.T) {
	needs(t, "transactions")
	coll := collection(t)
	session := must(coll.Database().Client().StartSession())(t)
	defer session.EndSession(context.Background())
	for how, save := range map[string]func(context.Context, *Document[order]) error{
		"Save":           func(ctx context.Context, d *Document[order]) error { return d.Save(ctx) },
		"SaveAndRelease": func(ctx context.Context, d *Document[order]) error { return d.SaveAndRelease(ctx) },
	} {
		for _, commit := range []bool{false, true} {
			id := how + map[bool]string{true: "-committed", false: "-aborted"}[commit]
			put(t, coll, order{ID: id, State: "new"})
			locks := locksOn[order](t, coll, With(mongolock.TTL(time.Minute)))
			doc := must(locks.Acquire(t.Context(), ID(id)))(t)
			if err := session.StartTransaction(); err != nil {
				t.Fatal(err)
			}
			ctx := mongo.NewSessionContext(t.Context(), session)
			doc.Value.State = "paid"
			if err := save(ctx, doc); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			if raw := get(t, coll, id); raw.Lookup("state").StringValue() != "new" || readLock(raw, "lock").id != doc.Lease().ID() {
				t.Errorf("%s: before its end others see %v", id, raw)
			}
			end, state, locked := session.AbortTransaction, "new", true
			if commit {
				end, state, locked = session.CommitTransaction, "paid", how == "Save"
			}
			if err := end(ctx); err != nil {
				t.Fatal(err)
			}
			if raw := get(t, coll, id); raw.Lookup("state").StringValue() != state || (readLock(raw, "lock").id != "") != locked {
				t.Errorf("%s: after it there is %v", id, raw)
			}
			if !commit { // still locked: it can be saved again, whatever the first one did
				if err := doc.Save(t.Context()); err != nil {
					t.Errorf("%s: saved once more: %v", id, err)
				}
				if state := get(t, coll, id).Lookup("state").StringValue(); state != "paid" {
					t.Errorf("%s: saved once more: %s", id, state)
				}
			}
			if err := doc.Release(); err != nil {
				t.Errorf("%s: the release: %v", id, err)
			}
			if readLock(get(t, coll, id), "lock").id != "" {
				t.Errorf("%s: still locked", id)
			}
		}
	}
}

func TestARenewalAfterTheCommitEndsTheLeaseAsReleased(t *testing.T) {
	needs(t, "transactions")
	coll := collection(t)
	put(t, coll, order{ID: "o"})
	doc := must(locksOn[order](t, coll).Acquire(t.Context(), ID("o")))(t)
	client := coll.Database().Client()
	err := client.UseSession(t.Context(), func(ctx context.Context) error {
		_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
			doc.Value.State = "paid"
			return nil, doc.SaveAndRelease(ctx)
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = doc.Lease().Renew(t.Context())
	if err := doc.Lease().Err(); !errors.Is(err, mongolock.ErrReleased) {
		t.Errorf("the lease ended with %v", err)
	}
	if err := doc.Release(); err != nil {
		t.Errorf("the release: %v", err)
	}
}

func TestALockIsTakenOutsideOfTheCallersTransaction(t *testing.T) {
	needs(t, "transactions")
	coll := collection(t)
	put(t, coll, order{ID: "o"}, order{ID: "held"})
	must(locksOn[order](t, coll).Acquire(t.Context(), ID("held")))(t)
	locks := locksOn[order](t, coll)
	client := coll.Database().Client()
	aborted := errors.New("aborted")
	var doc *Document[order]
	err := client.UseSession(t.Context(), func(ctx context.Context) error {
		_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
			if _, err := coll.InsertOne(ctx, order{ID: "new"}); err != nil {
				return nil, err
			}
			if _, err := locks.TryAcquire(ctx, ID("held")); !errors.Is(err, mongolock.ErrHeld) {
				t.Errorf("got %v", err)
			}
			if _, err := locks.TryAcquire(ctx, ID("new")); !errors.Is(err, ErrNotFound) {
				t.Errorf("of a document that only the transaction knows: %v", err)
			}
			var err error
			if doc, err = locks.TryAcquire(ctx, ID("o")); err != nil {
				t.Errorf("got %v", err)
			}
			if err := coll.FindOne(ctx, ID("new")).Err(); err != nil {
				t.Errorf("the transaction did not live through it: %v", err)
			}
			return nil, aborted
		}, options.Transaction())
		return err
	})
	if !errors.Is(err, aborted) {
		t.Fatal(err)
	}
	if readLock(get(t, coll, "o"), "lock").id != doc.Lease().ID() {
		t.Error("the abort freed it")
	}
}

// expire sets a document's lock to have run out.
func expire(t testing.TB, coll *mongo.Collection, id any) {
	t.Helper()
	_, err := coll.UpdateOne(t.Context(), ID(id), bson.M{"$set": bson.M{"lock.expireAt": time.Now().Add(-time.Minute)}})
	if err != nil {
		t.Fatal(err)
	}
}
