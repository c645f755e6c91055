package leader

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
)

// highest is the highest priority.
const highest = 9

// Candidates of all priorities wait in the line of their key, first come, first served. Beside that, one
// of a priority above 0 that waits shares a second key, whose note shows its priority. A lower
// one that is granted the first key, or leads, looks who shares the second, and makes room.
//
// A candidate shares the second key before it asks for the first. So if a leader learns
// that somebody waits, it sees of which priority that is.

// How often a leader looks for a candidate of a higher priority.
const (
	lookUnasked = 30 * time.Second // as long as it was not told that anybody waits
	lookAsked   = 5 * time.Second  // from then on: it is not told of others that come
	lookTime    = 2 * time.Second  // for the look before a term; then it leads
)

// forever is for how long a candidate waits, and shows its priority, whatever its client's defaults are.
const forever = 100 * 365 * 24 * time.Hour

// roomAgain is by how much a candidate has to outlive, by its renewals, the room that was made for it,
// before room is made for it again.
const roomAgain = time.Minute

// preferred is what a Candidate knows of those of a higher priority that wait.
type preferred struct {
	key string

	// hadRoom has, by ID, the candidates for which room was made, and the end of the lease from which on
	// that is done again. One that did not come may be dead: then its lease does not get so far.
	hadRoom map[string]time.Time
}

// preferredKey is the key that candidates of a priority share while they wait.
func preferredKey(key string) string { return key + ".preferred" }

const notePrefix = "priority "

func noteOf(priority int) string { return notePrefix + strconv.Itoa(priority) }

// priorityOf returns the priority that a note shows, or 0.
func priorityOf(note string) int {
	text, shown := strings.CutPrefix(note, notePrefix)
	if n, err := strconv.Atoi(text); shown && err == nil {
		return n
	}
	return 0
}

// Priority makes this process lead rather than candidates of a lower priority, from 0, the default, to 9.
//
//   - A leader of a lower priority resigns for it: at once if no other waits, otherwise within five
//     seconds, and within thirty if the leader's client hears no wake-ups.
//   - Of the candidates that wait, one of the highest priority leads next. A lower one that is granted the key
//     first passes it on before it leads.
//   - No candidate makes room for one of an equal or a lower priority.
//   - A candidate that does not take the key within a second, because it died or is slow, is passed, and the
//     others lead. They make room for it again once its process has lived on for a minute.
//
// Give it to all candidates, Priority(0) to the lowest: a leader without it resigns for none. While it
// waits, a candidate above 0 also shares the key with ".preferred" after it, with the TTL of its client.
func Priority(n int) Option {
	return option(func(c *config) error {
		if n < 0 || n > highest {
			return fmt.Errorf("leader: Priority(%d): must be between 0 and %d", n, highest)
		}
		c.rank, c.yields = n, n < highest
		return nil
	})
}

// checkKey says what is wrong with the key that shows a priority.
func checkKey(client *mongolock.Client, key string) error {
	terms, err := inside.TermsOf(client, key, []mongolock.AcquireOption(nil))
	switch {
	case err != nil:
		return fmt.Errorf("leader: Priority: %q: %w", key, err)
	case terms.NoRenewal:
		return errors.New("leader: Priority: the client has NoRenewal: the lease that shows the priority would run out")
	}
	return nil
}

// stand waits until the key is granted, and meanwhile shows the candidate's priority. If that is not shown
// any more, it fails: then this process stands again.
func (c *Candidate) stand(ctx context.Context, background *sync.WaitGroup) (*mongolock.Lease, error) {
	if c.rank == 0 {
		return c.client.Acquire(ctx, c.key, c.acquire...)
	}
	shown, err := c.client.Acquire(ctx, c.preferred.key, mongolock.Shared(), mongolock.Note(noteOf(c.rank)),
		mongolock.MaxHold(forever), mongolock.MaxStall(forever), mongolock.MaxWait(forever))
	if err != nil {
		return nil, err
	}
	defer background.Go(func() { c.release(shown) })
	lease, err := c.client.Acquire(shown.Context(ctx), c.key, c.acquire...)
	if hidden := shown.Err(); err != nil && hidden != nil {
		err = fmt.Errorf("%w: %w", errHidden, hidden)
	}
	return lease, err
}

// passOn gives back the key that was just granted, if a candidate of a higher priority waits for it.
func (c *Candidate) passOn(ctx context.Context, lease *mongolock.Lease) bool {
	if !c.yields {
		return false
	}
	select {
	case <-lease.Wanted():
	default:
		return false // nobody waits
	}
	look, cancel := context.WithTimeout(lease.Context(ctx), lookTime)
	defer cancel()
	if !c.outranked(look) {
		return false
	}
	c.release(lease)
	return true
}

// makeRoom ends the term once a candidate of a higher priority waits.
func (c *Candidate) makeRoom(term context.Context, lease *mongolock.Lease, recall context.CancelCauseFunc) {
	wanted := lease.Wanted()
	for pause := lookUnasked; ; {
		select {
		case <-wanted:
			wanted, pause = nil, lookAsked // it stays closed
		case <-time.After(pause):
		case <-term.Done():
			return
		}
		if c.outranked(term) {
			recall(ErrResigned)
			return
		}
	}
}

// outranked reports whether candidates of a higher priority wait that were not made room for before,
// and takes room for made.
func (c *Candidate) outranked(ctx context.Context) (is bool) {
	status, err := c.client.Inspect(ctx, c.preferred.key)
	if err != nil {
		return false // the next look is soon
	}
	hadRoom := map[string]time.Time{}
	for _, h := range status.Holders {
		again, had := c.preferred.hadRoom[h.ID]
		switch {
		case priorityOf(h.Note) <= c.rank, !status.Live(h):
		case had && h.ExpireAt.Before(again):
			hadRoom[h.ID] = again
		default:
			is, hadRoom[h.ID] = true, h.ExpireAt.Add(roomAgain)
		}
	}
	c.preferred.hadRoom = hadRoom
	return is
}
