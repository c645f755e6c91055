package assign_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/assign"
	"github.com/mongolock/mongolock/store/memstore"
)

const name = "orders"

// A fleet watches the work of all processes of a test.
type fleet struct {
	t       *testing.T
	in      *memstore.Store
	n       int
	started uint64
	began   time.Time

	clientOpts []mongolock.ClientOption
	broken     func(*link) // for controls

	mu      sync.Mutex
	busy    map[int]string // by partition, the process whose work may go on
	left    map[int]time.Time
	gaps    []time.Duration // from one process's work to the next one's
	moves   int
	doubled []string // partitions that two processes worked on, with the processes
	token   map[int]int64
	dead    map[string]bool
}

func newFleet(t *testing.T, in *memstore.Store, n int) *fleet {
	return &fleet{t: t, in: in, n: n, began: time.Now(), busy: make(map[int]string), left: make(map[int]time.Time), token: make(map[int]int64), dead: make(map[string]bool)}
}

// work is the function of a process: it goes on until its context ends.
func (f *fleet) work(process string) assign.Func {
	return func(ctx context.Context, p assign.Partition) error {
		f.begin(process, p)
		<-ctx.Done()
		f.end(process, p)
		return ctx.Err()
	}
}

func (f *fleet) begin(process string, p assign.Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead[process] {
		return
	}
	if other, is := f.busy[p.ID]; is {
		f.doubled = append(f.doubled, fmt.Sprintf("%d: %s and %s", p.ID, other, process))
	}
	if p.Token <= f.token[p.ID] {
		f.doubled = append(f.doubled, fmt.Sprintf("%d: token %d after %d", p.ID, p.Token, f.token[p.ID]))
	}
	f.token[p.ID] = p.Token
	f.busy[p.ID] = process
	f.moves++
	if at, is := f.left[p.ID]; is {
		f.gaps = append(f.gaps, time.Since(at))
	}
}

func (f *fleet) end(process string, p assign.Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy[p.ID] == process {
		delete(f.busy, p.ID)
		f.left[p.ID] = time.Now()
	}
}

// shares returns how many partitions each process works on.
func (f *fleet) shares() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]int)
	for _, process := range f.busy {
		all[process]++
	}
	return all
}

// counted returns how many partitions were taken, and the gaps, since the last call.
func (f *fleet) counted() (moves int, gaps []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	moves, gaps = f.moves, f.gaps
	f.moves, f.gaps = 0, nil
	return moves, gaps
}

// A process is a client that calls Run.
type process struct {
	name   string
	link   *link
	client *mongolock.Client
	cancel context.CancelFunc
	over   chan error
}

// logs counts what is logged, by message.
type logs struct {
	slog.Handler
	mu  sync.Mutex
	all map[string]int
}

func newLogs() *logs { return &logs{Handler: slog.DiscardHandler, all: make(map[string]int)} }

func (l *logs) Enabled(context.Context, slog.Level) bool { return true }

func (l *logs) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[r.Message]++
	return nil
}

// counted returns how often a message was logged since the last call.
func (l *logs) counted(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer delete(l.all, message)
	return l.all[message]
}

func (l *logs) option() assign.Option { return assign.WithLogger(slog.New(l)) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (f *fleet) start(called string, opts ...assign.Option) *process {
	return f.startWith(called, f.work(called), opts...)
}

func (f *fleet) startWith(called string, work assign.Func, opts ...assign.Option) *process {
	f.started++
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{name: called, link: newLink(f.in, f.started), cancel: cancel, over: make(chan error, 1)}
	if f.broken != nil {
		f.broken(p.link)
	}
	var err error
	p.client, err = mongolock.NewWithStore(p.link, append([]mongolock.ClientOption{mongolock.WithLogger(quiet()), mongolock.WithOwner(called)}, f.clientOpts...)...)
	require.NoError(f.t, err)
	opts = append([]assign.Option{assign.WithLogger(quiet()), assign.Settle(0)}, opts...)
	n := f.n
	go func() { p.over <- assign.Run(ctx, p.client, name, n, work, opts...) }()
	return p
}

// stop ends the processes as SIGTERM would.
func (f *fleet) stop(all ...*process) {
	f.t.Helper()
	for _, p := range all {
		p.cancel()
	}
	for _, p := range all {
		require.NoError(f.t, <-p.over, p.name)
		require.NoError(f.t, p.client.Close(), p.name)
	}
	require.Empty(f.t, f.doubled)
}

// kill ends a process without a word: its work is over at once, and the store hears no more of it.
// Close it when the test ends.
func (f *fleet) kill(p *process) {
	p.link.set(true)
	p.cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead[p.name] = true
	for id, by := range f.busy {
		if by == p.name {
			delete(f.busy, id)
			f.left[id] = time.Now()
		}
	}
}

func (f *fleet) bury(p *process) {
	<-p.over
	_ = p.client.Close() // the store is out of reach
}

func TestThePartitionsAreSpreadOverTheProcessesThatAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 256)
		a := f.start("a")
		time.Sleep(time.Second)
		assert.Equal(t, map[string]int{"a": 256}, f.shares())
		moves, gaps := f.counted()
		assert.Equal(t, 256, moves)
		assert.Empty(t, gaps)

		b := f.start("b")
		time.Sleep(time.Second)
		assert.Equal(t, map[string]int{"a": 128, "b": 128}, f.shares())
		moves, gaps = f.counted()
		assert.Equal(t, 128, moves)
		assert.Less(t, slices.Max(gaps), 20*time.Millisecond)

		c := f.start("c", assign.Weight(2))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]int{"a": 64, "b": 64, "c": 128}, f.shares())
		moves, _ = f.counted()
		assert.Equal(t, 128, moves)

		f.stop(b)
		time.Sleep(100 * time.Millisecond) // until the last of its partitions has arrived
		assert.Equal(t, 256, f.shares()["a"]+f.shares()["c"])
		moves, gaps = f.counted()
		assert.Equal(t, 64, moves)
		assert.Less(t, slices.Max(gaps), 20*time.Millisecond)
		f.stop(a, c)
		assert.Empty(t, f.shares())
	})
}

func TestThePartitionsOfAProcessThatDiedAreTakenWithinATTLAndASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memstore.New(), 64)
		a, b, c := f.start("a"), f.start("b"), f.start("c")
		time.Sleep(time.Minute)
		require.Len(t, f.shares(), 3)
		f.kill(c)
		time.Sleep(31 * time.Second)
		assert.Equal(t, map[string]int{"a": 32, "b": 32}, f.shares())
		f.bury(c)
		f.stop(a, b)
	})
}
