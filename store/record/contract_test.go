package record_test

import (
	"fmt"
	"testing"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/storetest"
)

// byHand is the store of the example, whose rows the suite can change by hand.
type byHand struct{ lockTable }

func (s byHand) Purge(key string) error {
	r, _ := s.get(key)
	s.swap(key, r.version, "")
	return nil
}

func (s byHand) Foreign(key string) (intact func() error, err error) {
	const text = `{"mongolock":2}`
	r, _ := s.get(key)
	s.swap(key, r.version, text)
	return func() error {
		if r, _ := s.get(key); r.text != text {
			return fmt.Errorf("found %q", r.text)
		}
		return nil
	}, nil
}

func newTable(testing.TB) store.Store { return byHand{lockTable{&table{rows: make(map[string]row)}}} }

func TestTheStoreOfTheExampleKeepsTheContract(t *testing.T) {
	storetest.Run(t, storetest.Virtual, newTable)
}

func TestTheStoreOfTheExampleKeepsTheContractInRealTime(t *testing.T) {
	storetest.Run(t, storetest.Real, newTable)
}
