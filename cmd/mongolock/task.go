package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/store/memstore"
)

// A task is a command that run, once or paths lock runs while a lock is held.
type task struct {
	key         string // the lock, as messages name it
	path        string // the program's
	argv        []string
	env         []string // in addition to this process's own
	ttl, margin time.Duration

	begin func() error // called when signals go to the command; an error says that one came before
}

// A held is the lock that a command is run under. A *mongolock.Lease is one.
type held interface {
	Err() error
	Done() <-chan struct{}
	Remaining() time.Duration
}

// An argv is the command under run, once and paths lock. Flags of ours stand before it: what
// follows its name is its own.
type argv struct {
	Command []string `arg:"" passthrough:"partial" name:"command" help:"The command and its arguments; a -- may stand before it."`
}

// AfterApply takes the -- away.
func (a *argv) AfterApply() error {
	if len(a.Command) > 0 && a.Command[0] == "--" {
		a.Command = a.Command[1:]
	}
	if len(a.Command) == 0 {
		return errors.New(`expected "<command> ..."`)
	}
	return nil
}

// newTask finds the program, before any lock is asked for.
func newTask(key string, argv []string, ttl, margin time.Duration) (task, error) {
	path, err := exec.LookPath(argv[0])
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return task{}, exitf(exitNotFound, "%s: not found", shown(argv[0]))
	case err != nil:
		return task{}, exitf(exitNotRun, "%s: %s", shown(argv[0]), sentence(errors.Unwrap(err)))
	}
	return task{key: key, path: path, argv: argv, ttl: ttl, margin: margin}, nil
}

// decimal is a token in JSON: it is greater than the 2^53 to which jq and JavaScript count.
func decimal(token int64) string { return strconv.FormatInt(token, 10) }

// environment returns the variables that tell the command about its lock.
func environment(key string, token int64, left, maxHold time.Duration) []string {
	until := time.Now().Add(left)
	if maxHold > 0 {
		until = time.Now().Add(maxHold) // the hold began a round trip ago: whole seconds allow for that
	}
	return []string{
		"MONGOLOCK_KEY=" + key,
		"MONGOLOCK_TOKEN=" + decimal(token),
		"MONGOLOCK_DEADLINE=" + strconv.FormatInt(until.Unix(), 10),
	}
}

// marginOf returns the margin that was asked for, or else the library's default.
func marginOf(asked, ttl time.Duration) time.Duration {
	if asked > 0 {
		return asked
	}
	return min(time.Second, ttl/10)
}

// checkTimes refuses values that no option of the library refuses.
func checkTimes(margin, ttl time.Duration, wait *time.Duration) error {
	switch {
	case margin < 0 || margin > ttl/2:
		return exitf(exitUsage, "--margin=%v: must be from 0 to half the TTL of %v", margin, ttl)
	case wait != nil && *wait < 0:
		return exitf(exitUsage, "--wait=%v: must not be negative", *wait)
	}
	return nil
}

// A flagged is an option of the library, and the flag that sets it.
type flagged struct {
	flag string
	set  bool
	opt  mongolock.AcquireOption
}

// checkOptions tries each option by itself, so that an error can name its flag.
func checkOptions(of string, all []flagged) error {
	for _, o := range all {
		if !o.set {
			continue
		}
		key := "k"
		if o.flag == "KEY" {
			key = of
		}
		if err := tryOption(key, o.opt); err != nil {
			return exitf(exitUsage, "%s: %s", o.flag, reason(err))
		}
	}
	return nil
}

// tryOption asks a store in memory what is wrong with options.
func tryOption(key string, opts ...mongolock.AcquireOption) error {
	client, err := mongolock.NewWithStore(memstore.New(), mongolock.WithMargin(0))
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it is in memory
	lease, err := client.TryAcquire(context.Background(), key, opts...)
	if err != nil {
		return err
	}
	return lease.Release()
}

// noteOf returns the command's name and the plain words after it, up to the first option: that is what
// is run, such as the script of an interpreter. What follows may be secret.
func noteOf(command []string) string {
	words := []string{shown(command[0])}
	for _, arg := range command[1:] {
		if !plainWord.MatchString(arg) {
			words = append(words, "…")
			break
		}
		words = append(words, arg)
	}
	note := []rune(strings.Join(words, " "))
	if len(note) > 200 {
		note = append(note[:199], '…')
	}
	return string(note)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./-]{0,99}$`)

// A teller reports what happens to the lease.
type teller struct {
	w      io.Writer
	asJSON bool
	key    string
}

// tell reports an event: in text only if a person has to know it.
func (t teller) tell(event, text string, more map[string]any) {
	if !t.asJSON {
		if text != "" {
			fmt.Fprintf(t.w, "mongolock: %s\n", text)
		}
		return
	}
	line := map[string]any{"event": event, "key": t.key, "at": time.Now().UTC().Format(time.RFC3339Nano)}
	if text != "" {
		line["text"] = text
	}
	maps.Copy(line, more)
	p := printer{w: t.w}
	_ = p.encode(line) // standard error may be closed: then the line is lost
}

// untilSignal returns a context that a signal ends, with the signal as its cause.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		defer cancel(nil)
		select {
		case s := <-signals:
			cancel(&signalError{s.(syscall.Signal)})
			return
		case <-over:
		}
		select { // one that came just before
		case s := <-signals:
			cancel(&signalError{s.(syscall.Signal)})
		default:
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(over)
		<-ended
	})
}

// begun ends the time in which signals end ctx, and returns an error if one came.
func begun(ctx context.Context, caught func()) error {
	caught()
	var s *signalError
	if errors.As(context.Cause(ctx), &s) {
		return &exitError{code: exitSignal + int(s.signal), told: true, unbegun: true}
	}
	return nil
}

type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string { return e.signal.String() }
