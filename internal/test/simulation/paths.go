package simulation

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock/internal/test/history"
	"github.com/mongolock/mongolock/pathlock"
)

// A pathProcess is a process that locks paths.
type pathProcess struct {
	*process
	tree *pathlock.Tree
}

// A pathHold is what is known of a lock that was granted: by its users, and by the
// database.
type pathHold struct {
	path     string
	mode     pathlock.Mode
	depth    pathlock.Depth
	client   int
	from, to time.Duration // certainly held
	ended    bool          // its release was asked for
	endedAt  time.Duration // when
}

// pathRun is the history of a run with path locks. It is protected by the world's mutex.
type pathRun struct {
	w     *world
	holds map[string]*pathHold // by token
	order []string             // of the tokens, as they were granted
	dead  map[int]bool         // clients that were killed
	quiet time.Duration        // when all faults and clean-ups are over
	found []history.Violation
	calls map[string]int       // how calls ended
	clean map[string]time.Time // the new expiry that a refresh answered, by token and expiry
}

// longest is the longest timeout. Locks with it are always released: one that stays was
// granted without a caller knowing.
const longest = 10 * time.Minute

// simPaths are paths in each relation that two can have.
var simPaths = []string{"/", "/a", "/a/b", "/a/b/c", "/ab", "/d"}

// RunPaths runs one history of clients that lock paths, against the same servers and with
// the same faults as Run.
func RunPaths(seed uint64, s Settings) *Outcome {
	w := newWorld(seed, s)
	if w.plan.servers == routers { // before shards: path locks need one log
		s.Servers = replicaSet
		w = newWorld(seed, s)
	}
	w.late(s)
	run := &pathRun{w: w, holds: map[string]*pathHold{}, calls: map[string]int{}, clean: map[string]time.Time{}}
	w.mu.Lock()
	w.logf("seed %d: %s", seed, w.plan.String())
	w.createRegisters()
	w.schedule()
	w.mu.Unlock()
	d := w.rng("cast")
	processes := make([]*pathProcess, 2+d.n(3))
	var plain []*process
	for i := range processes {
		processes[i] = w.pathProcess(i)
		plain = append(plain, processes[i].process)
	}
	w.planKills(plain, d)
	var users sync.WaitGroup
	number := 0
	for _, p := range processes {
		for range 1 + d.n(3) {
			number++
			if s.Users > 0 && number > s.Users {
				continue
			}
			u := &pathUser{run: run, p: p, name: "u" + itoa(number)}
			u.rng = w.rng(u.name)
			steps := 6 + u.rng.n(10)
			if s.Steps > 0 {
				steps = min(steps, s.Steps)
			}
			users.Go(func() { u.work(steps) })
		}
	}
	users.Wait()
	w.waitUntilExpired()
	w.mu.Lock()
	run.quiet = w.since()
	w.mu.Unlock()
	time.Sleep(longest) // for the locks of killed processes
	run.lastRound(processes)
	for _, p := range processes {
		time.Sleep(time.Microsecond + time.Duration(p.id)*time.Nanosecond)
		_ = p.tree.Close()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	run.judge(plain)
	for what, n := range run.calls {
		w.faults["call: "+what] = n
	}
	return &Outcome{
		History: &history.History{}, Log: w.text(), Faults: w.faults, Commands: w.sends,
		Long: w.since(), Plan: w.plan.String(), stuck: run.found, Recording: run.recording(),
	}
}

func (w *world) pathProcess(id int) *pathProcess {
	p := &process{world: w, id: id}
	driver, err := connect(p, w.plan.retries)
	if err != nil {
		panic(err)
	}
	w.suspend(p)
	return &pathProcess{p, openPaths(driver)}
}

func openPaths(driver *mongo.Client) *pathlock.Tree {
	storage, err := pathlock.OnMongo(driver.Database(lockDB).Collection(lockColl))
	if err != nil {
		panic(err)
	}
	tree, err := pathlock.New(storage, "files")
	if err != nil {
		panic(err)
	}
	return tree
}

func (r *pathRun) ended(what string, err error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	text := "ok"
	if err != nil {
		text, _, _ = strings.Cut(strings.TrimPrefix(err.Error(), "pathlock: "), ":")
		if strings.Contains(text, "lock of") {
			text = "conflict"
		}
	}
	r.calls[what+" "+text]++
	r.w.logf("%s: %v", what, err)
}

func (r *pathRun) granted(client int, l pathlock.Lock, sent time.Duration) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.w.logf("client %d has %s %s %s, until %v", client, l.Path, l.Mode, l.Depth, sent+l.Left)
	r.order = append(r.order, l.Token)
	r.holds[l.Token] = &pathHold{path: l.Path, mode: l.Mode, depth: l.Depth, client: client, from: r.w.since(), to: sent + l.Left}
}

// refreshes notes that a lock may be shortened from now on, whatever the call answers, and even if its
// caller leaves.
func (r *pathRun) refreshes(l pathlock.Lock, timeouts []time.Duration) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	h := r.holds[l.Token]
	if len(timeouts) > 0 {
		h.to = min(h.to, r.w.since()+timeouts[0])
	}
	r.record(history.Called, h.client, l.Token, h.to)
}

func (r *pathRun) refreshed(l pathlock.Lock, sent time.Duration) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.holds[l.Token].to = sent + l.Left
	r.clean[l.Token+l.ExpireAt.String()] = l.ExpireAt
}

// releases notes that the holder of a lock lets it go.
func (r *pathRun) releases(token string) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	h := r.holds[token]
	if !h.ended {
		h.ended, h.endedAt = true, r.w.since()
	}
	h.to = min(h.to, r.w.since())
	r.record(history.LetGo, h.client, token, 0)
}

func (r *pathRun) violation(check, format string, args ...any) {
	r.found = append(r.found, history.Violation{Check: check, At: r.w.since(), Text: fmt.Sprintf(format, args...)})
}

// lastRound has each process that is alive lock the whole tree: nothing may be in the way.
func (r *pathRun) lastRound(processes []*pathProcess) {
	for _, p := range processes {
		if p.isDead() {
			continue
		}
		u := &pathUser{run: r, p: p, name: "last", rng: r.w.rng("last " + itoa(p.id))}
		var err error
		for range 3 {
			ctx, cancel := u.ctx(40 * time.Second)
			var l pathlock.Lock
			began := r.w.since()
			l, err = p.tree.LockWait(ctx, pathlock.Request{Depth: pathlock.Infinity, Timeouts: []time.Duration{time.Second}})
			if err == nil {
				r.granted(p.id, l, r.w.since())
				r.told(history.Granted, p.id, l.Token, began+l.Left)
				r.releases(l.Token)
				err = p.tree.Release(ctx, l.Token)
			}
			cancel()
			if err == nil {
				break
			}
			time.Sleep(u.rng.between(time.Microsecond, 10*time.Millisecond))
		}
		if err != nil {
			r.w.mu.Lock()
			r.violation("stuck", "the tree can no longer be locked: %v", err)
			r.w.mu.Unlock()
		}
	}
}

func (h *pathHold) seen() history.PathHold {
	return history.PathHold{Client: h.client, Path: h.path, Shared: h.mode == pathlock.Shared, Infinity: h.depth == pathlock.Infinity, From: h.from, To: h.to}
}

func inConflict(a, b *pathHold) bool { return a.seen().Conflicts(b.seen()) }

// judge finds locks that conflict and were held at the same time, for longer than the
// servers' clocks may differ, and reads what the database did.
func (r *pathRun) judge(processes []*process) {
	tolerance := r.w.plan.clockSkew + time.Millisecond
	r.dead = map[int]bool{}
	for _, p := range processes {
		r.dead[p.id] = p.dead
	}
	holds := make([]history.PathHold, len(r.order))
	for i, token := range r.order {
		holds[i] = r.holds[token].seen()
	}
	found, _ := history.PathConflicts(holds, tolerance)
	r.found = append(r.found, found...)
	r.judgeLog(tolerance)
	slices.SortFunc(r.found, func(a, b history.Violation) int { return strings.Compare(a.Text, b.Text) })
}
