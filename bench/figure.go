package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A figure is one line of the table: a measurement and its target.
type figure struct {
	name     string
	measured float64
	form     string // of the number, "%.2f ×"
	target   float64
	bound    bound
	than     string // what it is compared with, or how it was counted
}

type bound int

const (
	noTarget bound = iota
	atMost
	atLeast
)

func (f figure) value() string { return fmt.Sprintf(f.form, f.measured) }

func (f figure) wanted() string {
	switch f.bound {
	case atMost:
		return "≤ " + fmt.Sprintf(f.form, f.target)
	case atLeast:
		return "≥ " + fmt.Sprintf(f.form, f.target)
	}
	return ""
}

func (f figure) verdict() string {
	switch {
	case f.bound == noTarget:
		return ""
	case f.bound == atMost && f.measured > f.target, f.bound == atLeast && f.measured < f.target:
		return "missed"
	}
	return "met"
}

// together merges the figures of several rounds: each becomes the median, with the range
// beside it.
func together(rounds [][]figure) []figure {
	if len(rounds) < 2 {
		return slices.Concat(rounds...)
	}
	all := slices.Clone(rounds[0])
	for i := range all {
		f, values := &all[i], make([]float64, len(rounds))
		for r, figures := range rounds {
			values[r] = figures[i].measured
		}
		f.measured = median(values)
		low, high := *f, *f
		low.measured, high.measured = slices.Min(values), slices.Max(values)
		if low.value() != high.value() {
			f.than += fmt.Sprintf("; %d rounds: %s to %s", len(rounds), low.value(), high.value())
		}
	}
	return all
}

// A race times its contestants in turns, in random order: whatever slows the machine slows
// all of them, and none always follows the same other one.
type race struct {
	runs []func() error
	took [][]float64 // seconds
}

func raceOf(runs ...func() error) *race {
	return &race{runs: runs, took: make([][]float64, len(runs))}
}

// run makes n turns, after some that do not count.
func (r *race) run(warm, n int) error {
	for i := range warm + n {
		for _, n := range rand.Perm(len(r.runs)) {
			start := time.Now()
			if err := r.runs[n](); err != nil {
				return err
			}
			if i >= warm {
				r.took[n] = append(r.took[n], time.Since(start).Seconds())
			}
		}
	}
	return nil
}

// median returns the median of one contestant, in seconds.
func (r *race) median(n int) float64 { return median(r.took[n]) }

// ratio returns the first contestant's median, divided by that of another.
func (r *race) ratio(other int) float64 { return r.median(0) / r.median(other) }

// ratioByTurn returns the median of the ratios of each turn. It is for turns that are long
// enough for both contestants to meet the same state of the machine.
func (r *race) ratioByTurn(other int) float64 {
	ratios := make([]float64, len(r.took[0]))
	for i, first := range r.took[0] {
		ratios[i] = first / r.took[other][i]
	}
	return median(ratios)
}

func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	n := len(s)
	if n == 0 {
		return 0
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}
