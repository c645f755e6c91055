package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/devmongo"
)

// A failure ends a part: there is no figure of something that did not work.
type failure struct{ err error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// caught is deferred where failures end.
func caught(of string, into *error) {
	switch f := recover().(type) {
	case nil:
	case failure:
		*into = fmt.Errorf("%s: %w", of, f.err)
	default:
		panic(f)
	}
}

// sideBySide runs n at a time and waits for all.
func sideBySide(n int, run func(i int)) {
	var all sync.WaitGroup
	failed := make([]error, n)
	for i := range n {
		all.Go(func() {
			defer caught("one of several", &failed[i])
			run(i)
		})
	}
	all.Wait()
	check(errors.Join(failed...))
}

// A lab is the server on which figures are taken, and what is opened there.
type lab struct {
	ctx    context.Context
	server *devmongo.Server
	uri    string
	driver *mongo.Client
	ends   []func() error
}

func (l *lab) open(kind string) {
	server, err := devmongo.Start(l.ctx, kind)
	if err != nil {
		check(fmt.Errorf("the figures on MongoDB need a server of kind %q, which `make server` puts in place: %w", kind, err))
	}
	l.server, l.uri = server, server.URI()
	l.ends = append(l.ends, server.Stop)
	l.driver = l.connect(nil)
}

// atEnd keeps what to do when the part has ended, the last first.
func (l *lab) atEnd(end func() error) { l.ends = append(l.ends, end) }

func (l *lab) close() (err error) {
	for _, end := range slices.Backward(l.ends) {
		err = errors.Join(err, end())
	}
	return err
}

// A traffic counts what is sent over a connection; of the commands some read from a cursor.
type traffic struct{ commands, reads atomic.Int64 }

// connect connects to the server, and counts the commands that are sent unless sent is nil.
func (l *lab) connect(sent *traffic) *mongo.Client {
	var monitor *event.CommandMonitor
	if sent != nil {
		monitor = &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			sent.commands.Add(1)
			if e.CommandName == "getMore" {
				sent.reads.Add(1)
			}
		}}
	}
	driver := must(mongo.Connect(options.Client().ApplyURI(l.uri).SetMonitor(monitor)))
	l.atEnd(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := driver.Disconnect(ctx); !errors.Is(err, mongo.ErrClientDisconnected) {
			return err
		}
		return nil
	})
	return driver
}

// client opens a client on a collection of that name. It is closed at the end; what it still
// holds then runs out.
func (l *lab) client(driver *mongo.Client, name string, opts ...mongolock.ClientOption) *mongolock.Client {
	client := must(mongolock.New(locksOf(driver, name), append(opts, quiet)...))
	l.atEnd(func() error { _ = client.Close(); return nil })
	return client
}

// locks returns a client on a collection of its own, and the same collection by hand.
func (l *lab) locks(name string, opts ...mongolock.ClientOption) (*mongolock.Client, byHand) {
	return l.client(l.driver, name, opts...), handOn(locksOf(l.driver, name))
}

func locksOf(driver *mongo.Client, name string) *mongo.Collection {
	return driver.Database("bench_" + name).Collection("locks")
}

var (
	silent = slog.New(slog.DiscardHandler)
	quiet  = mongolock.WithLogger(silent)
)

// acquire ends the part if it fails.
func (l *lab) acquire(by *mongolock.Client, key string) *mongolock.Lease {
	return must(by.Acquire(l.ctx, key))
}

// pair acquires a key and releases it.
func (l *lab) pair(by *mongolock.Client, key string) {
	check(l.acquire(by, key).Release())
}

// machine describes what the figures were taken on, without naming the host.
func (l *lab) machine() string {
	load, processor, server := "unknown", "an unnamed processor", "none"
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(text), " ")
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(text), "model name"); ok {
			line, _, _ := strings.Cut(after, "\n")
			processor = strings.Trim(line, " \t:")
		}
	}
	if l.server != nil {
		var info struct {
			Version string `bson:"version"`
		}
		check(l.driver.Database("admin").RunCommand(l.ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info))
		server = fmt.Sprintf("%s %s, on this machine, as `devmongo` starts it", l.server.Kind(), info.Version)
	}
	return fmt.Sprintf("Taken on %s, %d cores, %s/%s, %s, with a load average of %s; server: %s.",
		processor, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), load, server)
}

// A contestant does something once, and returns how many seconds of it count.
type contestant func() float64

// timed is a contestant of which all counts.
func timed(run func()) contestant {
	return func() float64 {
		start := time.Now()
		run()
		return time.Since(start).Seconds()
	}
}

// A race is what each contestant took in each turn, in seconds.
type race [][]float64

// raceOf lets contestants take n turns, after some that do not count; each turn in random
// order: whatever slows the machine slows all of them, and none always follows the same other
// one.
func raceOf(warm, n int, all ...contestant) race {
	took := make(race, len(all))
	for i := range warm + n {
		for _, c := range rand.Perm(len(all)) {
			if seconds := all[c](); i >= warm {
				took[c] = append(took[c], seconds)
			}
		}
	}
	return took
}

func (r race) median(n int) float64 { return median(r[n]) }

// ratio returns the first contestant's median, divided by that of another.
func (r race) ratio(other int) float64 { return r.median(0) / r.median(other) }

func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// repeat returns what runs several times.
func repeat(n int, run func()) func() {
	return func() {
		for range n {
			run()
		}
	}
}

// live returns how much of the heap is in use.
func live() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// computed returns for how long this process has computed.
func computed() time.Duration {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
