//go:build race

package assign_test

func init() { *histories = 100 } // the race detector makes each take ten times as long
