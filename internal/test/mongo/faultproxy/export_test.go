package faultproxy

import "testing"

// StartFake starts the fake server for the tests that drive it with a real driver.
func StartFake(t *testing.T) string { return startFake(t).uri() }
