package memstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/memstore"
	"github.com/mongolock/mongolock/store/storetest"
)

// byHand is a memstore whose records the suite can change by hand.
type byHand struct{ *memstore.Store }

func (s byHand) Purge(key string) error {
	s.Delete(key)
	return nil
}

func (s byHand) Foreign(key string) (intact func() error, err error) {
	content := map[string]any{"expireAt": time.Time{}}
	s.Put(key, content)
	return func() error {
		if got, ok := s.Store.Foreign(key); !ok || len(got.(map[string]any)) != len(content) {
			return fmt.Errorf("found %v", got)
		}
		return nil
	}, nil
}

func newStore(testing.TB) store.Store { return byHand{memstore.New()} }

func TestContractInVirtualTime(t *testing.T) { storetest.Run(t, storetest.Virtual, newStore) }

func TestContractInRealTime(t *testing.T) { storetest.Run(t, storetest.Real, newStore) }

func TestContractWithAClockAnHourAhead(t *testing.T) {
	storetest.Run(t, storetest.Virtual, func(testing.TB) store.Store {
		return byHand{memstore.New(memstore.WithClock(func() time.Time { return time.Now().Add(time.Hour) }))}
	})
}
