// Package storetest proves that a store keeps the contract of package store.
//
//	func TestTheStoreKeepsTheContract(t *testing.T) {
//		storetest.Run(t, storetest.Virtual, func(testing.TB) store.Store { return mystore.New() })
//	}
//
// [Run] makes one subtest for each claim of the contract, on a store that has its time from a
// testing/synctest bubble ([Virtual]), or on one that waits in real time. A store that is also a
// store.Feed is tested as that too. The interfaces [Purger],
// [Ager] and [Stranger] let the suite reach what a store's methods do not show. A store that passes can
// be used with mongolock.NewWithStore.
package storetest
