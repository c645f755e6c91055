package simulation

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/docdb"
	"github.com/mongolock/mongolock/internal/history"
	"github.com/mongolock/mongolock/store/memstore"
)

// An Outcome is a history and how it came about.
type Outcome struct {
	Seed     uint64
	History  *history.History
	Log      []byte
	Faults   map[string]int // what was made to go wrong, and how often
	Commands int
	Long     time.Duration // in virtual time
	Weather  string

	stuck []history.Violation
}

// Settings are what may differ between runs of one seed: what a shrunk run leaves
// out, and what a control takes away.
type Settings struct {
	Steps  int           // of each user; 0: as the seed says
	Users  int           // 0: as the seed says
	Margin time.Duration // WithMargin; negative: the default
	Memory bool          // over a memstore, without a database
	Late   time.Duration // by how much timers are late, as the knob says
	NoCuts, NoStrokes, NoNaps, NoSteps,
	NoLoss, NoLate, NoSlow, NoStalls bool // weather to leave out
}

func (s Settings) apply(x *weather) {
	if s.NoCuts {
		x.cuts = nil
	}
	if s.NoStrokes {
		x.strokes = nil
	}
	if s.NoNaps {
		x.naps = nil
	}
	if s.NoSteps {
		x.steps = nil
	}
	if s.NoLoss {
		x.lost, x.unanswered = 0, 0
	}
	if s.NoLate {
		x.late = 0
	}
	if s.NoSlow {
		x.slow = 0
	}
	if s.NoStalls {
		x.stalled = 0
	}
}

// Run lives one history through, in a bubble of virtual time that the caller has
// made. All randomness in the process must come from the seed.
func Run(seed uint64, s Settings) *Outcome {
	w := newWorld(seed)
	s.apply(&w.weather)
	s.Late = w.late(s)
	w.mu.Lock()
	w.logf("seed %d: %s", seed, w.weather.String())
	if s.Memory {
		w.mem, w.weather.spread = memstore.New(), 0
	} else {
		w.furnish()
		w.cluster.begin()
	}
	w.mu.Unlock()

	for _, c := range w.weather.cuts {
		w.after(c.from, func() {
			w.logf("client %d is cut off", c.client)
			w.noteLocked(history.Event{Kind: history.Trouble, Client: c.client, Until: c.to, Note: "cut off"})
		})
	}
	d := w.dice("cast")
	processes := make([]*process, 2+d.n(3))
	for i := range processes {
		processes[i] = w.process(i, s.Margin)
	}
	w.plan(processes, d)
	users, watch := w.populate(processes, d, s)
	users.Wait()
	w.settle()
	w.last(processes, watch)
	for _, p := range processes {
		time.Sleep(time.Microsecond + time.Duration(p.id)*time.Nanosecond)
		_ = p.client.Close()
	}
	watch.Wait()
	return w.outcome(s)
}

// furnish makes the registers that holders write to.
func (w *world) furnish() {
	m := w.cluster.leader
	docs := bson.A{}
	for _, key := range allKeys {
		docs = append(docs, bson.D{{Key: "_id", Value: key}})
	}
	_, _ = m.db.Do(docdb.Command{Name: "insert", DB: lockDB, Body: bson.D{{Key: "insert", Value: regColl}, {Key: "documents", Value: docs}}}, m.now(), false)
	w.cluster.replicate(m, 0)
	for _, o := range w.cluster.members {
		for i := range o.has {
			o.has[i] = w.start
		}
	}
}

func (w *world) process(id int, margin time.Duration) *process {
	p := &process{world: w, id: id}
	var err error
	if w.mem != nil {
		if p.client, err = mongolock.NewWithStore(&link{w.mem, p}, p.options(margin)...); err != nil {
			panic(err)
		}
		return p
	}
	driver, err := connect(p, w.weather.retries)
	if err != nil {
		panic(err)
	}
	w.nap(p)
	db := driver.Database(lockDB)
	p.coll = db.Collection(regColl, options.Collection().SetWriteConcern(writeconcern.Majority()))
	p.client, err = mongolock.New(db.Collection(lockColl), p.options(margin)...)
	if err != nil {
		panic(err)
	}
	return p
}

// plan has some processes killed.
func (w *world) plan(processes []*process, d *dice) {
	if w.weather.calm {
		return
	}
	for _, p := range processes[1:] {
		if !d.chance(200) {
			continue
		}
		w.after(d.between(time.Second, w.weather.storm), func() {
			w.fault("client killed")
			w.logf("client %d is killed", p.id)
			p.dead = true
			w.noteLocked(history.Event{Kind: history.Trouble, Client: p.id, Until: neverEnds})
		})
	}
}

// populate starts the users.
func (w *world) populate(processes []*process, d *dice, s Settings) (users, watch *sync.WaitGroup) {
	users, watch = new(sync.WaitGroup), new(sync.WaitGroup)
	keys := cast(d)
	tickets := new(stash)
	busy := w.weather.calm && d.chance(700)
	number := 0
	for _, p := range processes {
		for range 1 + d.n(2) {
			number++
			if s.Users > 0 && number > s.Users {
				continue
			}
			u := &user{p: p, number: number, name: "u" + itoa(number), keys: keys, stash: tickets, watch: watch}
			u.dice = w.dice(u.name)
			steps := 3 + u.dice.n(5)
			if u.busy = busy; busy || w.weather.gentle {
				steps *= 2
			}
			if s.Steps > 0 {
				steps = min(steps, s.Steps)
			}
			users.Go(func() { u.work(steps) })
		}
	}
	return users, watch
}

// settle waits until the storm is over and what it left behind has run out.
func (w *world) settle() {
	time.Sleep(max(w.weather.storm-w.since(), 0) + 3*w.weather.ttl + 20*time.Second)
}

// last has everybody who lives take every key once more: none may be stuck.
func (w *world) last(processes []*process, watch *sync.WaitGroup) {
	var all sync.WaitGroup
	for _, p := range processes {
		if p.isDead() {
			continue
		}
		u := &user{p: p, number: 100 + p.id, brief: true, name: "last", stash: new(stash), watch: watch, dice: w.dice("last " + itoa(p.id))}
		all.Go(func() {
			time.Sleep(u.dice.between(time.Microsecond, time.Second))
			for _, key := range allKeys {
				has := false
				for try := 0; try < 3 && !has; try++ { // a first step may fail where a driver does not retry
					has = u.acquire(key, way{}, false, 2*w.weather.ttl+30*time.Second)
					time.Sleep(u.dice.between(time.Microsecond, 10*time.Millisecond))
				}
				if !has {
					w.mu.Lock()
					w.stuck = append(w.stuck, history.Violation{Check: "stuck", At: w.since(), Text: key + " cannot be had any more"})
					w.mu.Unlock()
				}
				time.Sleep(u.dice.between(time.Microsecond, 10*time.Millisecond))
			}
		})
	}
	all.Wait()
}

func (w *world) outcome(s Settings) *Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	h := &w.history
	h.TTL, h.Margin = w.weather.ttl, w.weather.margin
	if s.Margin >= 0 {
		h.Margin = s.Margin
	}
	h.Blur = w.weather.spread + s.Late + time.Millisecond
	h.Calm, h.Storm, h.End, h.Numbers = w.weather.calm, w.weather.storm, w.since(), w.weather.retries
	h.Quick, h.Patient, h.Gap = time.Second, 8*time.Second, 1500*time.Millisecond
	if w.mem == nil {
		w.readLog()
	}
	return &Outcome{
		Seed: w.seed, History: h, Log: w.text(), Faults: w.faults, Commands: w.sends,
		Long: w.since(), Weather: w.weather.String(), stuck: w.stuck,
	}
}

// keyOf is the key in a ticket.
func keyOf(ticket string) string {
	_, body, _ := strings.Cut(ticket, ".")
	raw, _ := base64.RawURLEncoding.DecodeString(body)
	var t struct {
		Key string `json:"k"`
	}
	_ = json.Unmarshal(raw, &t)
	return t.Key
}

// Check judges the history.
func (o *Outcome) Check() []history.Violation { return append(o.History.Check(), o.stuck...) }
