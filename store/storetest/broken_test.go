package storetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/internal/test/kit/lab"
	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
)

// sound is a memstore whose records the suite can change by hand. A broken store is a
// sound one with one method that violates one duty.
type sound struct{ *memstore.Store }

func newSound() sound { return sound{memstore.New()} }

func (s sound) Purge(key string) error {
	s.Delete(key)
	return nil
}

func (s sound) Foreign(key string) (intact func() error, err error) {
	content := new(int)
	s.Put(key, content)
	return func() error {
		if got, ok := s.Store.Foreign(key); !ok || got != content {
			return fmt.Errorf("found %v", got)
		}
		return nil
	}, nil
}

// holder returns the first holder of key, live or expired; its ID is empty if there is
// none.
func (s sound) holder(key string) (store.Holder, store.Status) {
	all, _ := s.Store.Look(context.Background(), []string{key})
	if len(all[0].Holders) == 0 {
		return store.Holder{}, all[0]
	}
	return all[0].Holders[0], all[0]
}

// end releases one holder.
func (s sound) end(e store.ReleaseRequest) (store.ReleaseResult, error) {
	return s.Store.Release(context.Background(), e)
}

// remove removes the first holder of key.
func (s sound) remove(key string) {
	if h, _ := s.holder(key); h.ID != "" {
		s.end(store.ReleaseRequest{Ref: exclusive(key, h.ID)})
	}
}

// replace removes the first holder of key and grants a claim in its place.
func (s sound) replace(c store.Claim) (store.Grant, error) {
	s.remove(c.Key)
	return s.Store.Acquire(context.Background(), c)
}

func exclusive(key, id string) store.Ref {
	return store.Ref{Key: key, ID: id, Mode: store.Exclusive}
}

// A recorder records the failures of a claim without failing the test.
type recorder struct {
	testing.TB
	mu       sync.Mutex // protects failures
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) FailNow() { runtime.Goexit() }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.FailNow()
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprintln(args...)) }
func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprintln(args...)) }
func (r *recorder) Fail()             { r.Errorf("failed") }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

// fails runs each claim on a store of its own and returns those that failed, each with
// its first message.
func fails(t *testing.T, mode Mode, newStore func() store.Store, claims []claim) map[string]string {
	failed := make(map[string]string)
	for _, c := range claims {
		mode.run(t, func(t testing.TB) {
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() { // Fatalf ends it
				defer close(done)
				c.body(newEnv(r, mode, func(testing.TB) store.Store { return newStore() }))
			}()
			<-done
			if r.Failed() {
				failed[c.name] = r.failures[0]
			}
		})
	}
	return failed
}

func TestNoClaimFailsOnASoundStore(t *testing.T) {
	assert.Empty(t, fails(t, Virtual, func() store.Store { return newSound() }, claimsOn(newSound())))
}

// Claims about time allow for the time that a call takes, so distance does not break a
// store.
func TestNoClaimFailsOnASoundStoreBehindASlowNetwork(t *testing.T) {
	Run(t, Virtual, func(testing.TB) store.Store {
		far := lab.New(newSound())
		trip := func(ctx context.Context, call *lab.Call) error {
			if err := passes(ctx, 20*time.Millisecond); err != nil {
				return err
			}
			_ = call.Do()
			return passes(ctx, 30*time.Millisecond)
		}
		far.All(trip)
		far.On(lab.Watch, trip)
		return far
	})
}

// passes waits for d, or until ctx ends.
func passes(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestAClaimFailsInRealTimeToo(t *testing.T) {
	failed := fails(t, Real, func() store.Store { return releaseByKey{newSound()} }, releaseClaims[:3])
	assert.Contains(t, failed, "AReleaseAffectsOnlyTheHolderItNames")
}

// TestEachBrokenStoreFailsItsClaims is the negative control of the suite: the claims
// about a duty fail on a store that violates it.
func TestEachBrokenStoreFailsItsClaims(t *testing.T) {
	for _, b := range brokenStores {
		t.Run(b.name, func(t *testing.T) {
			claims := slices.DeleteFunc(claimsOn(b.new()), func(c claim) bool {
				return !slices.Contains(b.claims, c.name)
			})
			failed := fails(t, Virtual, b.new, claims)
			for _, claim := range b.claims {
				if why, ok := failed[claim]; ok {
					t.Logf("%s: %s", claim, strings.TrimSpace(why))
				} else {
					t.Errorf("%s did not fail", claim)
				}
			}
		})
	}
}

func TestEachClaimIsFailedBySomeBrokenStore(t *testing.T) {
	var seen []string
	for _, b := range brokenStores {
		seen = append(seen, b.claims...)
	}
	for _, c := range claimsOn(newSound()) {
		assert.Contains(t, seen, c.name, "no broken store fails this claim")
	}
}
