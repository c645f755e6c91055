package mongolock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
	"github.com/mongolock/mongolock/store"
)

// These limit how long many releases in one call may take. The attempts at a blocked record, of
// which the last is for that record alone, fit into the time of Close.
const (
	bulkBound  = releaseBound * 2 / 5
	againBound = releaseBound / 6 // in a repeated attempt

	repeatParts = 16 // releases that take the place of one that failed
)

// givers is how many parts of the abandoned leases are given back at a time.
const givers = 4

// A returner gives back the leases of a client that have no holder any more: those that were
// lost, and those that came too late for their callers. Thousands may be lost at once, because
// a server is too slow: one command for each would keep the server from renewing the others.
type returner struct {
	client *Client

	mu     sync.Mutex // protects what follows
	leases []*holding
	busy   int // number of goroutines
}

// giveBackInBackground gives the lease back alone if few others are being given back, and
// otherwise together with them.
func (h *holding) giveBackInBackground() {
	c := h.client
	r := &c.returner
	r.mu.Lock()
	r.leases = append(r.leases, h)
	mine := r.busy < givers
	if mine {
		r.busy++
	}
	r.mu.Unlock()
	if mine {
		c.background.Run(r.unheld)
	}
}

func (r *returner) unheld() {
	for {
		r.mu.Lock()
		n := min(len(r.leases), batchSize)
		if n == 0 {
			r.leases = nil
			r.busy--
			r.mu.Unlock()
			return
		}
		part := r.leases[:n:n]
		r.leases = r.leases[n:]
		r.mu.Unlock()
		r.giveBack(r.bulks(part), bulkBound)
	}
}

// giveBackAll gives leases back, with several calls under way at once. Many leases go in bulks,
// where the store has these. Failed releases are repeated in the background.
func giveBackAll(leases []*holding) {
	for len(leases) > 0 {
		c, n := leases[0].client, 0
		for n < len(leases) && leases[n].client == c {
			n++
		}
		c.returner.giveBack(c.returner.bulks(leases[:n]), bulkBound)
		leases = leases[n:]
	}
}

// bulks returns the parts in which leases are given back. A lease that can be handed on is a
// part of its own.
func (r *returner) bulks(leases []*holding) (parts [][]*holding) {
	var many []*holding
	for i, h := range leases {
		if successor, _ := r.client.queues.successor(h); successor != nil {
			parts = append(parts, leases[i:i+1])
		} else {
			many = append(many, h)
		}
	}
	return slices.AppendSeq(parts, slices.Chunk(many, batchSize))
}

// giveBack gives leases back part by part, several parts at a time. A part of several leases
// may take bound.
func (r *returner) giveBack(parts [][]*holding, bound time.Duration) {
	one := func(part []*holding) {
		if len(part) == 1 {
			_ = part[0].giveBack() // the lease keeps the error
		} else {
			r.many(part, bound)
		}
	}
	if len(parts) == 1 { // a goroutine for it would take longer than all else that this process does
		one(parts[0])
		return
	}
	todo := make(chan []*holding, len(parts))
	for _, part := range parts {
		todo <- part
	}
	close(todo)
	var wg sync.WaitGroup
	for range min(giveBackMost, len(parts)) {
		wg.Go(func() {
			for part := range todo {
				one(part)
			}
		})
	}
	wg.Wait()
}

// many gives many leases back, with one store call. The call may use only a part
// of a release's time, so that one blocked record does not use up the time of all: the leases
// that are left are tried again in smaller parts.
func (r *returner) many(leases []*holding, bound time.Duration) {
	c := r.client
	mine, others := make([]*holding, 0, len(leases)), []<-chan struct{}(nil)
	batch := make([]store.Ending, 0, len(leases))
	for _, h := range leases {
		switch other, over := h.beginRelease(); {
		case over:
		case other != nil:
			others = append(others, other)
		default:
			mine, batch = append(mine, h), append(batch, h.ending())
		}
	}
	defer func() {
		for _, other := range others {
			<-other
		}
	}()
	if len(mine) == 0 {
		return
	}
	values, end := c.observe(context.Background(), OpRelease, "", nil)
	ctx, cancel := c.background.Within(values, bound)
	answers := c.store.Release(ctx, batch)
	cancel()

	var errs []error
	var free []string // whose line is not known
	var told []store.Notice
	var failed []*holding
	for i, h := range mine {
		done, sure, err := h.released(answers[i])
		errs = append(errs, err)
		if sure {
			told = append(told, h.nowOffered(answers[i])...)
		} else {
			free = append(free, h.ref.Key)
		}
		if !done && h.failedRelease(err) {
			failed = append(failed, h)
		}
	}
	c.watch.Announce(told...)
	c.freed(free...)
	end(Outcome{Err: errors.Join(errs...), Count: len(mine)})
	if len(failed) > 0 {
		c.background.Go(func() { r.repeat(failed) })
	}
}

// repeat makes further attempts for leases whose first attempt failed together. It makes them
// in parts, side by side, so that a record which holds up the release of others is soon alone.
func (r *returner) repeat(leases []*holding) {
	for pause := backoff.New(50*time.Millisecond, 5*time.Second); r.client.background.Pause(pause.Next()); {
		leases = slices.DeleteFunc(leases, (*holding).isGivenBack)
		if len(leases) == 0 {
			return
		}
		r.giveBack(slices.Collect(slices.Chunk(leases, (len(leases)+repeatParts-1)/repeatParts)), againBound)
	}
}

// isGivenBack reports whether the lease is settled. A lease that has run out is.
func (h *holding) isGivenBack() bool {
	c := h.client
	h.mu.Lock()
	done, ranOut := h.release.state == settled, c.clock.Now() >= h.term.Honoured()
	if ranOut && !done {
		h.release.settle(h.answered(nil))
	}
	h.mu.Unlock()
	if ranOut && !done {
		c.logger.Info("mongolock: could not give a lease back before it ran out", "key", h.ref.Key, "token", h.token)
		c.queues.forget(h)
		c.freed(h.ref.Key)
	}
	return done || ranOut
}
