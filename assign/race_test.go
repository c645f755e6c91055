//go:build race

package assign_test

func init() { *histories = 50 } // the race detector makes each take ten times as long
