package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/fence"
)

// A depositor adds one to an account under a lock: it acquires the lock, reads the account, and
// writes what it read plus one. The account is a document in MongoDB, whatever the lock is.
type depositor struct {
	Lock     string // its short name
	Fenced   bool   // writes with the token of the lease
	At       place  // of the lock
	Account  place
	acquire  func(ctx context.Context) (token int64, release func() error, err error)
	accounts *mongo.Collection
	close    func() error
}

const (
	pauseTTL   = 2 * time.Second
	pauseChild = "MONGOLOCK_COMPARE_PAUSE" // the environment of a child that is paused
	pauseKey   = "account"
)

// pauses are the locks of the demonstration, in this order.
var pauses = []depositor{{Lock: "redislock"}, {Lock: "square"}, {Lock: "etcd"}, {Lock: "mongolock"}, {Lock: "mongolock", Fenced: true}}

// runPauses shows what a pause does: a process reads an account under a lock and is stopped (SIGSTOP)
// for longer than its lease; a second one waits for the lock, and makes its deposit; the first
// continues with its write. Whatever the lock, the first cannot know that its lease is over: between
// any check and the write there may be such a pause. Only the store that is written to can refuse.
func runPauses(ctx context.Context) (err error) {
	fmt.Fprintf(os.Stdout, "Two processes add 1 to an account of 0. The first is stopped for longer than its lease of %v, between its read and its write.\n\n", pauseTTL)
	failed := false
	for _, d := range pauses {
		sum, first, err := d.show(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name(), err)
		}
		what := "a deposit is LOST"
		if sum == 2 {
			what = "nothing is lost"
		}
		fmt.Fprintf(os.Stdout, "%-28s account %d, the first write was %-10s%s\n", d.name(), sum, first+":", what)
		failed = failed || (sum == 2) != d.Fenced
	}
	if failed {
		return errors.New("a lock behaved as none should here: without a fence a deposit is lost, and with one none is")
	}
	return nil
}

func (d *depositor) name() string {
	name, _, _ := strings.Cut(d.contender().name, ",")
	if name = strings.Trim(name, "*"); d.Fenced {
		name += ", with a fence"
	}
	return name
}

// show makes both deposits, and returns what is in the account afterwards, and what became of the
// write of the process that was stopped.
func (d *depositor) show(ctx context.Context) (sum int, first string, err error) {
	at, stop, err := d.contender().start(ctx)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, stop()) }()
	account, drop, err := startMongo(ctx)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, drop()) }()
	d.At, d.Account = at, account
	if err := d.open(ctx); err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if _, err := d.accounts.InsertOne(ctx, bson.D{{Key: "_id", Value: pauseKey}, {Key: "sum", Value: 0}}); err != nil {
		return 0, "", err
	}
	stopped, err := d.startChild(ctx)
	if err != nil {
		return 0, "", err
	}
	defer stopped.end()
	if err := stopped.process.Signal(syscall.SIGSTOP); err != nil {
		return 0, "", err
	}
	if err := d.deposit(ctx, func() error { return nil }); err != nil {
		return 0, "", fmt.Errorf("the second deposit: %w", err)
	}
	if first, err = stopped.goOn(); err != nil {
		return 0, "", err
	}
	sum, err = d.sum(ctx)
	return sum, first, err
}

func (d *depositor) contender() contender {
	return contenders[slices.IndexFunc(contenders, func(c contender) bool { return c.short == d.Lock })]
}

// open connects to the lock and to the account.
func (d *depositor) open(ctx context.Context) error {
	driver, err := mongo.Connect(options.Client().ApplyURI(d.Account.Address))
	if err != nil {
		return err
	}
	d.accounts = driver.Database(d.Account.Database).Collection("accounts")
	disconnect := func() error { return driver.Disconnect(context.Background()) }
	if !d.Fenced {
		l, err := d.contender().open(ctx, d.At, setting{ttl: pauseTTL}, new(requests))
		d.acquire = func(ctx context.Context) (int64, func() error, error) {
			release, err := l.acquire(ctx, pauseKey)
			return 0, release, err
		}
		d.close = func() error { return errors.Join(l.close(), disconnect()) }
		return err
	}
	client, err := mongolock.New(driver.Database(d.At.Database).Collection("locks"),
		mongolock.WithLogger(slog.New(slog.DiscardHandler)), mongolock.TTL(pauseTTL))
	d.acquire = func(ctx context.Context) (int64, func() error, error) {
		lease, err := client.Acquire(ctx, pauseKey)
		if err != nil {
			return 0, nil, err
		}
		return lease.Token(), lease.Release, nil
	}
	d.close = func() error { return errors.Join(client.Close(), disconnect()) }
	return err
}

// deposit adds one. meanwhile runs between the read and the write.
func (d *depositor) deposit(ctx context.Context, meanwhile func() error) error {
	token, release, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	sum, err := d.sum(ctx)
	if err == nil {
		err = meanwhile()
	}
	if err != nil {
		return err
	}
	filter, update := bson.D{{Key: "_id", Value: pauseKey}}, bson.D{{Key: "$set", Value: bson.D{{Key: "sum", Value: sum + 1}}}}
	if d.Fenced {
		_, err = fence.UpdateOne(ctx, d.accounts, token, filter, update)
	} else {
		_, err = d.accounts.UpdateOne(ctx, filter, update)
	}
	_ = release() // one that was lost says so, which is no news here
	return err
}

func (d *depositor) sum(ctx context.Context) (int, error) {
	var account struct{ Sum int }
	err := d.accounts.FindOne(ctx, bson.D{{Key: "_id", Value: pauseKey}}).Decode(&account)
	return account.Sum, err
}

// A child is the process that is stopped.
type child struct {
	process *os.Process
	says    *bufio.Scanner
	tell    func() error
	end     func()
}

// startChild starts a process that acquires the lock, reads the account, and waits to be told.
func (d *depositor) startChild(ctx context.Context) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	orders, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env, cmd.Stderr = append(os.Environ(), pauseChild+"="+string(orders)), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd.Process, bufio.NewScanner(out), in.Close, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }}
	if word, err := c.hear(); err != nil || word != "read" {
		c.end()
		return nil, cmp.Or(err, fmt.Errorf("the process says %q", word))
	}
	return c, nil
}

func (c *child) hear() (string, error) {
	if !c.says.Scan() {
		return "", cmp.Or(c.says.Err(), errors.New("the process ended by itself"))
	}
	return strings.TrimSpace(c.says.Text()), nil
}

// goOn continues the process, and returns what became of its write.
func (c *child) goOn() (string, error) {
	if err := errors.Join(c.tell(), c.process.Signal(syscall.SIGCONT)); err != nil {
		return "", err
	}
	return c.hear()
}

// depositWhenTold is the main function of such a child.
func depositWhenTold() error {
	var d depositor
	if err := json.Unmarshal([]byte(os.Getenv(pauseChild)), &d); err != nil {
		return err
	}
	ctx := context.Background()
	if err := d.open(ctx); err != nil {
		return err
	}
	err := d.deposit(ctx, func() error {
		fmt.Fprintln(os.Stdout, "read")
		_, err := io.Copy(io.Discard, os.Stdin) // its end is the word
		return err
	})
	word := "accepted"
	if errors.Is(err, fence.ErrFenced) { // it was told, and makes its deposit under a new lease
		word, err = "refused", d.deposit(ctx, func() error { return nil })
	}
	fmt.Fprintln(os.Stdout, word)
	return err
}
