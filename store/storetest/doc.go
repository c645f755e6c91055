// Package storetest proves that a store keeps the contract of package store, and makes
// stores fail on purpose. Run is the contract as a test suite. Faulty is a store over a
// flaky network, for testing code that uses stores.
package storetest
