//go:build !race

package pathlock_test

const underRace = false
