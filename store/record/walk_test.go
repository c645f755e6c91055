package record_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mongolock/mongolock/store"
	"github.com/mongolock/mongolock/store/record"
)

// A claimer is the method Claim, or a broken one.
type claimer func(k *record.Key, now time.Time, c *store.Claim) (store.Grant, error)

func sound(k *record.Key, now time.Time, c *store.Claim) (store.Grant, error) { return k.Claim(now, c) }

func TestNoOrderOfCallsBreaksARule(t *testing.T) { assert.Empty(t, walks(sound)) }

// A walk has to notice each rule that is not kept.
func TestControlABrokenRuleIsNoticed(t *testing.T) {
	for name, claim := range map[string]claimer{
		"holders ignored": func(k *record.Key, now time.Time, c *store.Claim) (store.Grant, error) {
			g, err := (&record.Key{Line: slices.Clone(k.Line)}).Claim(now, c)
			if err == nil {
				k.Holders = append(k.Holders, record.Holder{ID: c.ID, Since: now, ExpireAt: now.Add(c.TTL), Weight: c.Weight})
				k.Mode = c.Mode
			}
			return g, err
		},
		"weight ignored": func(k *record.Key, now time.Time, c *store.Claim) (store.Grant, error) {
			light := *c
			light.Weight = 1
			return k.Claim(now, &light)
		},
		"line ignored": func(k *record.Key, now time.Time, c *store.Claim) (store.Grant, error) {
			line := k.Line
			k.Line = nil
			g, err := k.Claim(now, c)
			if k.Line = line; err != nil {
				_, err = k.Claim(now, c)
			}
			return g, err
		},
		"line lost": func(k *record.Key, now time.Time, c *store.Claim) (store.Grant, error) {
			g, err := k.Claim(now, c)
			if err == nil {
				k.Line = nil
			}
			return g, err
		},
		"never granted while others wait": func(k *record.Key, now time.Time, c *store.Claim) (store.Grant, error) {
			if len(k.Line) > 1 {
				return store.Grant{}, &store.HeldError{Status: k.Status(c.Key, now)}
			}
			return k.Claim(now, c)
		},
	} {
		assert.NotEmpty(t, walks(claim), name)
	}
}

// walks returns what the first walk that notices something has noticed.
func walks(claim claimer) (wrong []string) {
	for seed := uint64(0); seed < 300 && len(wrong) == 0; seed++ {
		wrong = walk(seed, claim)
	}
	return wrong
}

// walk makes calls at random, and returns what their answers do to a key that they must not do. It knows
// the rules as the contract has them, not as the package does.
func walk(seed uint64, claim claimer) (wrong []string) {
	d := rand.New(rand.NewPCG(seed, 1))
	var k record.Key
	now := time.Date(2026, time.May, 3, 2, 0, 0, 0, time.UTC)
	waiting := make(map[store.Place]store.Claim) // the claims of all places
	for step := range 80 {
		was := clone(k)
		before := was.Status("k", now)
		say := func(format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("seed %d, step %d: %s\nfrom %+v\nto   %+v", seed, step, fmt.Sprintf(format, args...), before, k.Status("k", now)))
		}
		id := fmt.Sprint(step)
		switch holder := one(d, k.Holders); d.IntN(10) {
		case 0:
			now = now.Add(time.Duration(d.IntN(40)) * time.Second)
		case 1, 2:
			if _, err := k.Release(now, store.ReleaseRequest{Ref: ref(holder.ID)}); (err == nil) != (holder.ID != "") {
				say("release of %q: %v", holder.ID, err)
			}
		case 3:
			r, err := k.Renew(now, store.Renewal{Ref: ref(holder.ID), TTL: time.Duration(d.IntN(60)) * time.Second})
			if live := holder.ExpireAt.After(now); (err == nil) != live {
				say("renewal of %q, live %v: %v, %v", holder.ID, live, r, err)
			}
			for i := range k.Holders {
				if k.Holders[i].ExpireAt.Before(was.Holders[i].ExpireAt) || k.Holders[i].ID != was.Holders[i].ID {
					say("a renewal shortened or moved a holder")
				}
			}
		case 4:
			k.Leave(now, "k", one(d, k.Line).Place)
		default:
			c := waiting[one(d, k.Line).Place] // it asks again, or another one does
			if c.Place == "" || d.IntN(3) == 0 {
				c = store.Claim{Ref: store.Ref{Key: "k", Mode: []store.Mode{store.Exclusive, store.Shared, store.Permits}[d.IntN(3)]}}
				if c.Mode == store.Permits {
					c.Weight = 1 + d.IntN(2)
					c.Limit = c.Weight + d.IntN(3)
				}
				if d.IntN(4) > 0 {
					c.Place = store.Place(fmt.Sprintf("%s::%d", map[store.Mode]string{
						store.Exclusive: "x", store.Shared: "s", store.Permits: fmt.Sprintf("p%dw%d", c.Limit, c.Weight),
					}[c.Mode], step))
					waiting[c.Place] = c
				}
			}
			c.ID, c.TTL = id, time.Duration(10+d.IntN(30))*time.Second
			_, err := claim(&k, now, &c)
			claimed(&c, before, k.Status("k", now), err == nil, say)
		}
		if !slices.IsSortedFunc(k.Line, func(a, b store.Waiter) int { return a.Since.Compare(b.Since) }) {
			say("the line is in no order")
		}
		if len(k.Holders) > 0 && k.Verify() != nil {
			say("%v", k.Verify())
		}
	}
	return wrong
}

// claimed checks what a claim did.
func claimed(c *store.Claim, before, after store.Status, granted bool, say func(string, ...any)) {
	taken, weight := before.Taken(), max(1, c.Weight)
	fits := taken == 0 || c.Mode != store.Exclusive && before.Mode == c.Mode && (c.Mode == store.Shared || taken+weight <= c.Limit)
	at := slices.IndexFunc(before.Line, func(w store.Waiter) bool { return w.Place == c.Place && c.Place != "" })
	ahead := before.Line
	if at >= 0 {
		ahead = before.Line[:at]
	}
	count := slices.DeleteFunc(slices.Clone(ahead), before.Stale)
	is := func(w store.Waiter) bool { return w.Place == c.Place }
	switch {
	case granted && !fits:
		say("granted %v beside others", *c)
	case granted && c.Mode == store.Exclusive && len(count) > 0, granted && at < 0 && len(count) > 0:
		say("granted %v before its turn", *c)
	case granted && slices.ContainsFunc(count, func(w store.Waiter) bool { m, _ := w.Place.Mode(); return m != c.Mode }):
		say("granted %v before a waiter of another mode", *c)
	case granted && slices.ContainsFunc(after.Line, is) && c.Place != "":
		say("%v has the key and waits", *c)
	case granted && len(after.Line) < len(count)+len(before.Line)-max(at+1, len(ahead)):
		say("a grant to %v passed waiters that count", *c)
	case granted && after.Taken() != taken+weight:
		say("with %v %d are taken, %d before", *c, after.Taken(), taken)
	case !granted && fits && len(count) == 0:
		say("%v was refused in its turn", *c)
	case !granted && after.Taken() != taken:
		say("the refused %v changed the holders", *c)
	}
}

func one[T any](d *rand.Rand, all []T) (none T) {
	if len(all) == 0 {
		return none
	}
	return all[d.IntN(len(all))]
}

func clone(k record.Key) (same record.Key) {
	text, _ := json.Marshal(k)
	_ = json.Unmarshal(text, &same)
	return same
}
