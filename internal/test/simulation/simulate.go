package simulation

import (
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/internal/test/mongo/docdb"
	"github.com/mongolock/mongolock/store/memstore"
)

// An Outcome is a history, and how it came about.
type Outcome struct {
	History  *history.History
	Log      []byte
	Faults   map[string]int // how often each fault was injected
	Commands int
	Long     time.Duration // in virtual time
	Plan     string

	Recording *Recording

	stuck []history.Violation
}

// Settings make one run of a seed differ from another: what a shrunk run leaves out, and what
// a control takes away.
type Settings struct {
	Steps  int           // of each user; 0: as the seed says
	Users  int           // 0: as the seed says
	Margin time.Duration // WithMargin; negative: the default
	Memory bool          // over a memstore, without a database
	Late   time.Duration // how late timers are; needs the switches of package knob
	NoPartitions, NoFailovers, NoSuspensions, NoClockSteps,
	NoLoss, NoLate, NoSlow, NoStalls bool // faults to leave out

	Together bool   // the members' clocks are never far apart
	Forward  bool   // the clock of a primary may go forward far
	Servers  string // which kind; empty: as the seed says

	Elections bool // many, around one key, with clocks far apart
	Rolling   bool // a mixture in which all take permits, of numbers that differ as while deploys roll, while primaries fail
	Asking    bool // the key is held for long, users ask for it again and again, and many commands are slow
	Unfenced  bool // writes do not check the token
	Several   bool // users take several keys together, again and again
	AtOnce    bool // and give them back so, now and then
	Crowd     int  // in how many of a thousand histories many clients wait for one key
	Dying     int  // in how many of a thousand histories processes of a crowd die again and again
	Mixed     int  // in how many of a thousand histories the options of most calls are a mixture
}

func (s Settings) apply(x *faultPlan) {
	if s.NoPartitions {
		x.partitions = nil
	}
	if s.NoFailovers {
		x.failovers = nil
	}
	if s.NoSuspensions {
		x.suspensions = nil
	}
	if s.NoClockSteps {
		x.clockSteps = nil
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

// Run runs one history in a bubble of virtual time, which the caller has made. All randomness
// in the process must come from the seed.
func Run(seed uint64, s Settings) *Outcome {
	w := newWorld(seed, s)
	s.Late = w.late(s)
	w.mu.Lock()
	w.logf("seed %d: %s", seed, w.plan.String())
	if s.Memory {
		w.mem, w.plan.clockSkew, w.plan.clocksApart = memstore.New(), 0, 0
	} else {
		w.createRegisters()
		w.schedule()
	}
	w.mu.Unlock()

	for _, c := range w.plan.partitions {
		w.after(c.from, func() {
			w.logf("client %d is cut off", c.client)
			w.noteLocked(history.Event{Kind: history.Trouble, Client: c.client, Until: c.to, Note: "cut off"})
		})
	}
	d := w.rng("cast")
	processes := make([]*process, 2+d.n(3))
	if w.plan.crowd {
		processes = make([]*process, 4+w.rng("crowd of").n(5))
	}
	for i := range processes {
		processes[i] = w.process(i, s.Margin)
	}
	w.planKills(processes, d)
	w.unfenced, w.several, w.atOnce = s.Unfenced, s.Several, s.AtOnce
	users, watch := w.startUsers(processes, d, s)
	users.Wait()
	processes = append(processes, w.started...)
	w.waitUntilExpired()
	w.lastRound(processes, watch)
	for _, p := range processes {
		time.Sleep(time.Microsecond + time.Duration(p.id)*time.Nanosecond)
		_ = p.client.Close()
	}
	watch.Wait()
	out := w.outcome(s)
	return out
}

// createRegisters inserts the registers that holders write to.
func (w *world) createRegisters() {
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

// startUsers starts the users of all processes.
func (w *world) startUsers(processes []*process, d *rng, s Settings) (users, watch *sync.WaitGroup) {
	users, watch = new(sync.WaitGroup), new(sync.WaitGroup)
	keys := chooseKeys(d)
	if w.plan.elections {
		keys = allKeys[:1]
	}
	if w.plan.rolling {
		keys = []string{permits}
	}
	if s.Several {
		keys = allKeys[:2+d.n(2)]
	}
	if w.plan.crowd {
		keys = []string{oneOf(d, allKeys[0], readers, permits)}
	}
	tickets := new(ticketPool)
	busy := w.plan.noFaults && !w.plan.crowd && d.chance(700)
	number := 0
	join := func(p *process) {
		for range 1 + d.n(2) {
			number++
			if s.Users > 0 && number > s.Users {
				continue
			}
			u := &user{p: p, number: number, name: "u" + itoa(number), keys: keys, pool: tickets, watch: watch}
			u.rng = w.rng(u.name)
			steps := 3 + u.rng.n(5)
			if u.busy = busy; busy || w.plan.oneFault {
				steps *= 2
			}
			if w.plan.asking {
				steps *= 10
			}
			if w.plan.dying {
				steps *= 2
			}
			if s.Steps > 0 {
				steps = min(steps, s.Steps)
			}
			users.Go(func() { u.work(steps) })
		}
	}
	for _, p := range processes {
		join(p)
	}
	if w.plan.dying {
		users.Go(func() {
			next := len(processes)
			w.started = w.reap(processes, keys[0], func() *process {
				p := w.process(next, s.Margin)
				next++
				join(p)
				return p
			})
		})
	}
	return users, watch
}

// waitUntilExpired waits until the last fault is over and all that it left behind has expired.
func (w *world) waitUntilExpired() {
	time.Sleep(max(w.plan.faultsEnd-w.since(), 0) + 3*w.plan.ttl + 20*time.Second)
}

// lastRound has every process that is alive take every key once more: none may be stuck.
func (w *world) lastRound(processes []*process, watch *sync.WaitGroup) {
	var all sync.WaitGroup
	for _, p := range processes {
		if p.isDead() {
			continue
		}
		u := &user{p: p, number: 100 + p.id, brief: true, name: "last", pool: new(ticketPool), watch: watch, rng: w.rng("last " + itoa(p.id))}
		all.Go(func() {
			time.Sleep(u.rng.between(time.Microsecond, time.Second))
			for _, key := range allKeys {
				has := false
				for try := 0; try < 3 && !has; try++ { // a command may fail if the driver does not retry
					has = u.acquire(key, history.Mode{}, false, 2*w.plan.ttl+30*time.Second)
					time.Sleep(u.rng.between(time.Microsecond, 10*time.Millisecond))
				}
				if !has {
					w.mu.Lock()
					w.stuck = append(w.stuck, history.Violation{Check: "stuck", At: w.since(), Text: key + " can no longer be acquired"})
					w.mu.Unlock()
				}
				time.Sleep(u.rng.between(time.Microsecond, 10*time.Millisecond))
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
	h.TTL, h.Margin, h.Apart = w.plan.ttl, w.plan.margin, w.plan.clocksApart
	if w.plan.mixed {
		h.TTL = w.plan.longTTL()
	}
	if w.plan.servers == routers && w.plan.apart {
		h.Apart = routerApart*h.Apart + w.plan.ahead.Abs() // a date may be of any clock that its writer read
	}
	if s.Margin >= 0 {
		h.Margin = s.Margin
	}
	h.Tolerance = w.plan.clockSkew + s.Late + time.Millisecond
	h.NoFaults, h.Deaths = w.plan.noFaults && !w.plan.deaths, w.plan.deaths
	h.End, h.Numbered = w.since(), w.plan.retries && w.plan.servers != standalone
	h.Still = w.plan.servers == routers || w.plan.servers == single
	h.GhostLimit, h.LateGhostLimit = time.Second, 8*time.Second
	if w.mem == nil {
		w.readLog()
	}
	return &Outcome{
		History: h, Log: w.text(), Faults: w.faults, Commands: w.sends,
		Long: w.since(), Plan: w.plan.String(), stuck: w.stuck, Recording: w.describe(s.Late),
	}
}

// Check judges the history.
func (o *Outcome) Check() []history.Violation { return append(o.History.Check(), o.stuck...) }
