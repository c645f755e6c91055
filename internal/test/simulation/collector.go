package simulation

import (
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/history"
)

// The keys of collectors, who keep many leases for long, as processes with a session do: when
// one of these dies or loses its session, there is something to sweep.
var hoard = []string{"hoard-1", "hoard-2", "hoard-3", "hoard-4"}

// collectors returns one for most processes of a history with sessions. Their randomness is
// their own, so that the other users do what they would do without them.
func (w *world) collectors(processes []*process, watch *sync.WaitGroup, s Settings) (all []*user) {
	if !w.plan.sessions || s.Users > 0 || s.Several {
		return nil
	}
	for _, p := range processes {
		if d := w.rng("collector " + itoa(p.id)); d.chance(700) {
			all = append(all, &user{p: p, number: 50 + p.id, name: "c" + itoa(p.id), keys: hoard, watch: watch, rng: d})
		}
	}
	return all
}

// collect takes what it can get of its keys, and keeps all of that until a renewal or more
// has gone by; a few times.
func (u *user) collect() {
	ttl := u.p.world.plan.ttl
	for range 2 + u.rng.n(3) {
		time.Sleep(u.rng.between(time.Microsecond, ttl))
		if u.p.isDead() {
			return
		}
		var held []*mongolock.Lease
		keys := slices.Clone(u.keys)
		for i := range keys {
			j := i + u.rng.n(len(keys)-i)
			keys[i], keys[j] = keys[j], keys[i]
			call, l, err := u.ask(keys[i], history.Mode{}, u.rng.chance(600), u.rng.between(ttl/10, ttl))
			if u.answered(call, l, err, func() bool { return true }) {
				held = append(held, l)
			}
		}
		time.Sleep(u.rng.between(ttl/4, 4*ttl))
		for _, l := range held {
			u.release(l)
			time.Sleep(u.rng.between(time.Microsecond, time.Millisecond))
		}
	}
}
