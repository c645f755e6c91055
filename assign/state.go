package assign

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store"
)

// The keys of workers for "orders" are "orders/workers" and "orders/0000" to "orders/4999".
const (
	seats      = "/workers"
	digits     = 4
	maxName    = 1000
	maxParts   = 5_000
	mostSeats  = 10_000 // as many workers there can be, with one that resizes
	seatNote   = "worker %s of weight %d for %d partitions"
	partNote   = "worker %s of %d partitions"
	resizeNote = "resize to %d partitions"
)

func partKey(name string, id int) string { return fmt.Sprintf("%s/%0*d", name, digits, id) }

// A State shows the workers of a name and their partitions, at one moment of the store's clock.
type State struct {
	Workers    []Worker // that are there and do not drain, in the order in which they came
	Partitions []Part   // by number; empty: no such worker is there

	resizing bool   // a Resize waits for the seats, or has them all
	mixed    bool   // there are seats for another number of partitions too
	held     string // by whom that key is held who is no worker, and as what
	others   string // the key of a partition of another number that is worked on still
}

// A Worker is one call of Run, in any process.
type Worker struct {
	ID     string // made at random by Run
	Owner  string // of its client
	Weight int
	Since  time.Time     // when it came
	Age    time.Duration // since then
	Left   time.Duration // until its seat is over if it is not renewed
}

// A Part is a partition as a State shows it.
type Part struct {
	Worker string // the ID of the worker that has it, which drains if it is none of Workers; empty: no worker has it
	Owner  string // of the client that has its key; with no Worker, the key is held by hand; empty: it is free
	Since  time.Time
	Waits  bool // a worker waits for it
}

// Look shows the workers of a name and their partitions.
func Look(ctx context.Context, client *mongolock.Client, name string) (State, error) {
	if err := usable("Look", client, name); err != nil {
		return State{}, err
	}
	s, err := readSeats(ctx, client, name)
	if err == nil {
		err = s.readParts(ctx, client, name)
	}
	if err != nil {
		return State{}, fmt.Errorf("assign: %q: %w", name, err)
	}
	return s, nil
}

func usable(caller string, client *mongolock.Client, name string) error {
	switch {
	case client == nil:
		return fmt.Errorf("assign: %s: the client is nil", caller)
	case name == "":
		return fmt.Errorf("assign: %s: the name is empty", caller)
	case !utf8.ValidString(name):
		return fmt.Errorf("assign: %s: the name %q is not valid UTF-8", caller, name)
	case len(name) > maxName:
		return fmt.Errorf("assign: %s: the name has %d bytes: at most %d", caller, len(name), maxName)
	}
	return nil
}

func usableSize(caller string, n int) error {
	if n < 1 || n > maxParts {
		return fmt.Errorf("assign: %s: %d partitions: must be from 1 to %d", caller, n, maxParts)
	}
	return nil
}

// seatFor returns what a seat is asked for with.
func seatFor(note string) []mongolock.AcquireOption {
	return append(ours(), mongolock.OneOf(mostSeats), mongolock.Note(note))
}

const forever = 100 * 365 * 24 * time.Hour

// ours returns options for leases that end only when this package says so, whatever the client's defaults are.
func ours() []mongolock.AcquireOption {
	return []mongolock.AcquireOption{mongolock.MaxHold(forever), mongolock.MaxStall(forever), mongolock.MaxWait(forever)}
}

// readSeats returns the workers, and how many partitions they have.
func readSeats(ctx context.Context, client *mongolock.Client, name string) (State, error) {
	status, err := client.Inspect(ctx, name+seats)
	if err != nil {
		return State{}, err
	}
	return seatsOf(status), nil
}

// seatsOf reads the seats. The oldest says how many partitions there are. Seats for another number are
// those of processes that notice it only now: they are given back.
func seatsOf(status mongolock.Status) (s State) {
	for _, h := range status.Holders {
		if !status.Live(h) {
			continue
		}
		w, n := seatOf(h)
		switch {
		case status.Mode != store.Permits:
			s.resizing = s.resizing || status.Mode == store.Exclusive
			s.held = holding(h)
			continue
		case n > 0 && s.Partitions == nil:
			s.Partitions = make([]Part, n)
		}
		switch {
		case n > 0 && n != len(s.Partitions):
			s.mixed, s.held = true, holding(h)
		case w.ID == "": // a Resize has it, or it is held by hand
			s.held = holding(h)
		default:
			w.Age, w.Left = status.Now.Sub(h.Since), status.LeftOf(h)
			s.Workers = append(s.Workers, w)
		}
	}
	for _, w := range status.Line {
		mode, _ := w.Place.Mode()
		if mode == store.Exclusive && status.Now.Sub(w.Seen) < resizeSeen {
			s.resizing = true
			s.held = cmp.Or(s.held, fmt.Sprintf("asked for by %s", w.Owner))
		}
	}
	slices.SortFunc(s.Workers, func(a, b Worker) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) })
	return s
}

// holding tells of a hold, for the log.
func holding(h store.Holder) string { return fmt.Sprintf("by %s: %q", h.Owner, h.Note) }

// seatOf returns whose seat a holder of the key of the workers is, by its note, and for how many
// partitions. The worker has no ID if it is a Resize. n is 0 if it is no seat.
func seatOf(h store.Holder) (w Worker, n int) {
	w = Worker{Owner: h.Owner, Since: h.Since}
	if _, err := fmt.Sscanf(h.Note, seatNote, &w.ID, &w.Weight, &n); err != nil || w.Weight < 1 || w.Weight > maxWeight {
		w.ID, n = "", 0
		if _, err := fmt.Sscanf(h.Note, resizeNote, &n); err != nil {
			return w, 0
		}
	}
	if n < 1 || n > maxParts {
		return Worker{}, 0
	}
	return w, n
}

// readParts adds which worker has which partition.
func (s *State) readParts(ctx context.Context, client *mongolock.Client, name string) error {
	for status, err := range client.List(ctx, name+"/") {
		if err != nil {
			return err
		}
		number := status.Key[len(name)+1:]
		id, err := strconv.Atoi(number)
		if err != nil || id < 0 || partKey(name, id) != status.Key {
			continue
		}
		p := Part{Waits: len(status.Waiting("")) > 0}
		for _, h := range status.Holders {
			if status.Live(h) {
				of := 0
				if _, err := fmt.Sscanf(h.Note, partNote, &p.Worker, &of); err != nil {
					p.Worker = "" // it is held by hand
				}
				p.Owner, p.Since = h.Owner, h.Since
				if id < of && of != len(s.Partitions) {
					s.others = status.Key
				}
			}
		}
		if id < len(s.Partitions) {
			s.Partitions[id] = p
		}
	}
	return nil
}

// same reports whether two states show the same workers.
func (s *State) same(t *State) bool {
	return len(s.Partitions) == len(t.Partitions) && slices.EqualFunc(s.Workers, t.Workers, func(a, b Worker) bool { return a.ID == b.ID })
}

// settling returns how long it takes until each worker has been there for d. A worker that is alone
// has nothing to take from others.
func (s *State) settling(d time.Duration) (left time.Duration) {
	for _, w := range s.Workers {
		left = max(left, d-w.Age)
	}
	return left
}

// plan returns which partitions the worker should have, and whether each worker has what it should have.
// With calm, no partition that a worker has is moved.
func (s *State) plan(id string, calm bool) (mine []bool, whole bool) {
	var all []worker
	place := make(map[string]int)
	for i, w := range s.Workers {
		all = append(all, worker{w.ID, w.Weight})
		place[w.ID] = i
	}
	has := make([]int, len(s.Partitions))
	for p, part := range s.Partitions {
		has[p] = nobody
		if i, ok := place[part.Worker]; ok {
			has[p] = i
		}
	}
	mine = make([]bool, len(has))
	me, seated := place[id]
	to := spread(all, has, calm)
	for p, w := range to {
		mine[p] = seated && w == me
	}
	return mine, slices.Equal(has, to)
}

// nextLook returns when to read the seats again, at the latest: every third of a TTL, and when the
// first of them is over.
func (s *State) nextLook() time.Duration {
	var first, last time.Duration
	for i, w := range s.Workers {
		last = max(last, w.Left)
		if first = min(first, w.Left); i == 0 {
			first = w.Left
		}
	}
	return min(last/3, first+lookAfterEnd)
}
