// Package fewer keeps tests that only compute short under the race detector, which makes each of
// their cases take several times as long and finds nothing in the next that it did not in the first.
package fewer

// Of is how many of n cases to try: all, or a fifth under the race detector.
func Of(n int) int { return (n + part - 1) / part }
