package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The fields of an expression, in order.
const (
	second = iota
	minute
	hour
	dayOfMonth
	month
	dayOfWeek
	fields
)

// A place is what a field may have in it.
type place struct {
	name        string
	least, most int
	names       string // of the values from least on, three letters each
}

var places = [fields]place{
	second:     {name: "second", most: 59},
	minute:     {name: "minute", most: 59},
	hour:       {name: "hour", most: 23},
	dayOfMonth: {name: "day of month", least: 1, most: 31},
	month:      {name: "month", least: 1, most: 12, names: "janfebmaraprmayjunjulaugsepoctnovdec"},
	dayOfWeek:  {name: "day of week", most: 6, names: "sunmontuewedthufrisat"},
}

// values are those of one field, a bit for each.
type values uint64

// Marks beside the values of a field.
const (
	wild values = 1 << 62 // it has a * in it
	star values = 1 << 63 // it has a * without a step in it
)

func (v values) has(n int) bool { return v&(1<<n) != 0 }

// parse reads a field: a list of ranges.
func (p place) parse(text string) (all values, err error) {
	for part := range strings.SplitSeq(text, ",") {
		some, err := p.parseRange(part)
		if err != nil {
			return 0, err
		}
		all |= some
	}
	return all, nil
}

// parseRange reads *, 5, 1-5 or any of these with a step, as in */10.
func (p place) parseRange(text string) (values, error) {
	span, stepText, stepped := strings.Cut(text, "/")
	first, last, isRange := strings.Cut(span, "-")
	from, to, step, mark := p.least, p.most, 1, star|wild
	var err error
	if span != "*" && span != "?" {
		mark = 0
		if from, err = p.value(first); err != nil {
			return 0, err
		}
		switch {
		case isRange:
			if to, err = p.value(last); err != nil {
				return 0, err
			}
			if to < from {
				return 0, fmt.Errorf("the range %s ends before it begins", span)
			}
		case !stepped:
			to = from
		}
	}
	if stepped {
		if step, err = number(stepText); err != nil {
			return 0, err
		}
		if step == 0 {
			return 0, errors.New("the step is 0")
		}
		if step > 1 {
			mark &^= star
		}
	}
	all := mark
	for n := from; n <= to && n >= from; n += step {
		all |= 1 << n
	}
	return all, nil
}

func (p place) value(text string) (int, error) {
	if at := strings.Index(p.names, strings.ToLower(text)); at >= 0 && at%3 == 0 && len(text) == 3 {
		return p.least + at/3, nil
	}
	n, err := number(text)
	if err == nil && (n < p.least || n > p.most) {
		err = fmt.Errorf("%d is not between %d and %d", n, p.least, p.most)
	}
	return n, err
}

// number reads an unsigned decimal.
func number(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	return int(n), nil
}

// wallTimes are the local times of an expression, as if they were UTC.
type wallTimes [fields]values

// mostYears is how far apart two times of an expression may be: 29 February comes after eight
// years if the year between is like 2100.
const mostYears = 8

// Next returns the first of the times after t, or the zero time if there is none.
func (w wallTimes) Next(t time.Time) time.Time {
	t = t.Truncate(time.Second).Add(time.Second)
	limit := t.Year() + mostYears
	day := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	if w.onDay(day) {
		if clock, ok := w.clock(t.Sub(day)); ok {
			return day.Add(clock)
		}
	}
	for {
		day = day.AddDate(0, 0, 1)
		for !w[month].has(int(day.Month())) {
			day = time.Date(day.Year(), day.Month()+1, 1, 0, 0, 0, 0, time.UTC)
			if day.Year() > limit {
				return time.Time{}
			}
		}
		if day.Year() > limit {
			return time.Time{}
		}
		if w.onDay(day) {
			clock, _ := w.clock(0)
			return day.Add(clock)
		}
	}
}

// onDay reports whether the expression has times on a day.
func (w wallTimes) onDay(day time.Time) bool {
	inMonth, inWeek := w[dayOfMonth].has(day.Day()), w[dayOfWeek].has(int(day.Weekday()))
	if (w[dayOfMonth]|w[dayOfWeek])&star != 0 {
		inMonth = inMonth && inWeek
	} else {
		inMonth = inMonth || inWeek
	}
	return inMonth && w[month].has(int(day.Month()))
}

// clock returns the first time of a day from d after midnight on.
func (w wallTimes) clock(d time.Duration) (time.Duration, bool) {
	h, m, s := int(d/time.Hour), int(d/time.Minute)%60, int(d/time.Second)%60
	for ; h < 24; h, m, s = h+1, 0, 0 {
		if !w[hour].has(h) {
			continue
		}
		for ; m < 60; m, s = m+1, 0 {
			if !w[minute].has(m) {
				continue
			}
			for ; s < 60; s++ {
				if w[second].has(s) {
					return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second, true
				}
			}
		}
	}
	return 0, false
}
