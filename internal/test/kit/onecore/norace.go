//go:build !race

// Package onecore keeps the race detector from crashing where many timers run in virtual time.
package onecore

// Begin is for the race detector.
func Begin() (done func()) { return func() {} }
