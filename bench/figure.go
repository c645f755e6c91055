package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A figure is one line of the table: something measured, and what it may be.
type figure struct {
	name     string
	measured float64
	form     string // of the number, "%.2f ×"
	target   float64
	bound    bound
	than     string // what it is compared with, or counted over
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

// together is the figures of several rounds: of each the median, and how far they were
// apart.
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

// A race times its contestants in turns: what slows the machine slows all of them,
// and nobody always comes after the same one.
type race struct {
	runs []func() error
	took [][]float64 // seconds
}

func raceOf(runs ...func() error) *race {
	return &race{runs: runs, took: make([][]float64, len(runs))}
}

// run goes round n times, after a few rounds that do not count.
func (r *race) run(warm, n int) error {
	for i := range warm + n {
		for _, who := range rand.Perm(len(r.runs)) {
			start := time.Now()
			if err := r.runs[who](); err != nil {
				return err
			}
			if i >= warm {
				r.took[who] = append(r.took[who], time.Since(start).Seconds())
			}
		}
	}
	return nil
}

// median is that of one contestant, in seconds.
func (r *race) median(who int) float64 { return median(r.took[who]) }

// ratio is by how much the first's median is that of another.
func (r *race) ratio(other int) float64 { return r.median(0) / r.median(other) }

// ratioByTurn is the median of the ratios of each turn. It is for turns that are
// long enough to meet the same weather.
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
