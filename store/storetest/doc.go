// Package storetest proves that a store keeps the contract of package store, and
// breaks stores on purpose: Run is the contract as a suite, Faulty a store over a
// flaky network for the tests of those who use stores.
package storetest
