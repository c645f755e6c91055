package wake

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/mongolock/mongolock/store"
)

// Offers says whose turn it is, after a change of a key: to those places of the line to whom it is
// offered, n of them, and to the one behind.
func Offers(key string, line []store.Place, n int) (all []store.Notice) {
	all = Notices(store.KindOffered, key, line[:n])
	if n > 0 && n < len(line) {
		all = append(all, Notices(store.KindNext, key, line[n:n+1])...)
	}
	return all
}

// Offer is one notice that it is the turn of a place.
func Offer(key string, p store.Place) []store.Notice { return Offers(key, []store.Place{p}, 1) }

// Notices returns one for each place whose process hears any.
func Notices(kind, key string, places []store.Place) (all []store.Notice) {
	for _, p := range places {
		if p.Address() != "" {
			all = append(all, store.Notice{Topic: store.TopicLocks, Key: key, Kind: kind, To: p.Address(), Place: p})
		}
	}
	return all
}

// Unsent returns those notices that were not sent beside a release. One without a place was meant
// for whatever place its process has in line.
func Unsent(all, sent []store.Notice) (rest []store.Notice) {
	for _, n := range all {
		place := n
		place.Place = ""
		if !slices.Contains(sent, n) && !slices.Contains(sent, place) {
			rest = append(rest, n)
		}
	}
	return rest
}

// Wanted returns the notices that tell the holders of a key that somebody waits for it, if they asked to
// be told. Whoever tells them is in line, and is offered the key.
func Wanted(s *store.Status) (all []store.Notice) {
	for _, h := range s.Holders {
		if h.Yields != "" && s.Live(h) {
			all = append(all, store.Notice{Topic: store.TopicLocks, Key: s.Key, Kind: store.KindWanted, To: h.Yields})
		}
	}
	return all
}

// SendOnly is a feed that sends notices and hears none.
type SendOnly struct{ store.Feed }

// Watch yields that there is nothing to hear.
func (SendOnly) Watch(context.Context, store.Audience) iter.Seq2[store.Notice, error] {
	return func(yield func(store.Notice, error) bool) { yield(store.Notice{}, errors.ErrUnsupported) }
}
