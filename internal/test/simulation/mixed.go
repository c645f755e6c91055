package simulation

import (
	"time"

	"github.com/mongolock/mongolock"
)

// In a mixture the options of a call meet in any combination that the library takes, leases have
// two TTLs, and now and then somebody breaks a key. Its chances are of their own: without it a
// history stays what it was.

// longTTL is the TTL of some leases of a mixture. The others have the plan's.
func (x *faultPlan) longTTL() time.Duration { return x.ttl * 3 / 2 }

// mix does one step of a mixture, if it comes to that.
func (u *user) mix() bool {
	if !u.p.world.plan.mixed {
		return false
	}
	d := u.p.world.rng("mixture " + u.name + " " + itoa(u.ops))
	if d.chance(300) {
		return false
	}
	ttl := u.p.world.plan.ttl
	patience := d.between(ttl/4, 4*ttl)
	if d.chance(100) {
		u.breakKey(d, u.keys[d.n(len(u.keys))])
		return true
	}
	opts := u.options(d, patience)
	if len(u.keys) > 1 && d.chance(250) {
		u.acquireSeveral(d, patience, opts...)
		return true
	}
	key := u.keys[d.n(len(u.keys))]
	m, try := u.mode(key), d.chance(250)
	if m.Limit > 0 {
		m.Limit = u.rolled(m.Limit)
		m.Weight = u.weight(m.Limit)
	}
	switch {
	case d.chance(300):
		opts = append(opts, mongolock.MinHold(d.between(ttl/10, ttl)))
	case d.chance(200):
		opts = append(opts, mongolock.NoRenewal())
	}
	if !m.Shared && d.chance(300) {
		opts = append(opts, mongolock.Yielding())
	}
	u.acquire(key, m, try, patience, opts...)
	return true
}

// rolled draws how many permits a call allows: most often as many as others do, and now and then one
// less or up to two more, as while a deploy changes the number.
func (u *user) rolled(n int) int {
	d, often := u.p.world.rng("rolled "+u.name+" "+itoa(u.ops)), 300
	if u.p.world.plan.rolling {
		often = 700
	}
	if d.chance(often) {
		return max(1, n-1+d.n(4))
	}
	return n
}

// weight draws how many of some permits a call takes; 0 for one, as most do.
func (u *user) weight(of int) int {
	d := u.p.world.rng("weight " + u.name + " " + itoa(u.ops))
	if w := 1 + d.n(of); w > 1 && d.chance(600) {
		return w
	}
	return 0
}

// options draws the options that one key and several can have.
func (u *user) options(d *rng, patience time.Duration) (opts []mongolock.AcquireOption) {
	ttl := u.p.world.plan.ttl
	if d.chance(500) {
		opts = append(opts, mongolock.TTL(u.p.world.plan.longTTL()))
	}
	if d.chance(300) {
		opts = append(opts, mongolock.MaxHold(d.between(ttl/10, 2*ttl)))
	}
	if d.chance(200) {
		opts = append(opts, mongolock.MaxStall(d.between(ttl/10, 2*ttl)))
	}
	if d.chance(300) {
		opts = append(opts, mongolock.MaxWait(d.between(ttl/10, patience)))
	}
	if d.chance(200) {
		opts = append(opts, mongolock.Note("a mixture"))
	}
	return opts
}

// breakKey breaks a key as an operator does: it only marks the holders, or also removes them after
// a time by which they have run out, whatever hinders them.
func (u *user) breakKey(d *rng, key string) {
	u.newOp() // the next step is another
	grace := time.Duration(-1)
	if d.chance(500) {
		grace = u.p.world.plan.longTTL() * 21 / 20
	}
	_, _ = u.p.client.Break(u.ctx(), key, "by chance", grace)
}
