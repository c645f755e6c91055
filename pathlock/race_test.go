//go:build race

package pathlock_test

const underRace = true // which makes everything some five times slower
