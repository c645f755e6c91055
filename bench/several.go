package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/mongolock/mongolock"
)

const (
	severalKeys = 10
	severalRuns = 600
)

// oneByOne is a client that AcquireAll asks for one key after the other, as it does any
// wrapper.
type oneByOne struct{ *mongolock.Client }

// several compares ten free keys that are taken together with one, and with ten that are
// taken one after the other.
func several(ctx context.Context, l *lab) ([]figure, error) {
	client, _, err := l.locks("several")
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // nothing is held any more
	all := func(of mongolock.Locker, name string) func() error {
		var keys []string
		for i := range severalKeys {
			keys = append(keys, fmt.Sprint(name, i))
		}
		return func() error {
			leases, err := mongolock.AcquireAll(ctx, of, keys)
			return errors.Join(err, leases.Release())
		}
	}
	hand := handOn(locksOf(l.driver, "several_by_hand"))
	turns := raceOf(all(client, "together"), func() error { return pair(ctx, client, "alone") }, all(oneByOne{client}, "in turn"),
		func() error { return hand.together(ctx, severalKeys) })
	if err := turns.run(50, severalRuns); err != nil {
		return nil, err
	}
	return []figure{
		{"ten free keys, taken together and released", turns.ratio(1), "%.2f ×", 1.5, atMost, "one free key"},
		{"the same", turns.ratio(2), "%.2f ×", 0, noTarget, "ten that are taken one after the other"},
		{"their three commands by hand", turns.ratio(1) / turns.ratio(3), "%.2f ×", 0, noTarget, "one free key: the server's share of it"},
	}, nil
}
