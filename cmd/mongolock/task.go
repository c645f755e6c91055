package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/inside"
)

// A taskFlags has the flags that run, once and paths lock share, and the command.
type taskFlags struct {
	Wait    *time.Duration `help:"Give up after waiting this long, with 76 (default: wait for ever)." xor:"wait" placeholder:"30s"`
	TTL     time.Duration  `name:"ttl" help:"How long the lock stays taken if this process dies (default: 30s)." default:"30s" placeholder:"30s"`
	Margin  time.Duration  `help:"A lost lease ends this long before others can have the lock; SIGKILL follows SIGTERM after half of it (default: a tenth of the TTL, at most 1s)." placeholder:"1s"`
	Note    string         `help:"Text that others see beside the lock (default: the command's words before its first option)." placeholder:"TEXT"`
	PassURI bool           `name:"pass-uri" help:"Leave MONGOLOCK_URI and MONGODB_URI to the command also if a password is in them."`

	// Flags of ours stand before the command: what follows its name is its own.
	Command []string `arg:"" passthrough:"partial" name:"command" help:"The command and its arguments; a -- may stand before it."`
}

// AfterApply takes the -- away.
func (f *taskFlags) AfterApply() error {
	if len(f.Command) > 0 && f.Command[0] == "--" {
		f.Command = f.Command[1:]
	}
	if len(f.Command) == 0 {
		return errors.New(`expected "<command> ..."`)
	}
	return nil
}

// margin is what was asked for, or else the library's default.
func (f *taskFlags) margin() time.Duration { return marginOf(f.Margin, f.TTL) }

func marginOf(asked, ttl time.Duration) time.Duration {
	if asked > 0 {
		return asked
	}
	return min(time.Second, ttl/10)
}

func checkMargin(margin, ttl time.Duration) error {
	if margin < 0 || margin > ttl/2 {
		return exitf(exitUsage, "--margin=%v: must be from 0 to half the TTL of %v", margin, ttl)
	}
	return nil
}

func (f *taskFlags) note() string { return cmp.Or(f.Note, noteOf(f.Command)) }

// A terms collects options of the library, and what is wrong with the first bad one.
type terms struct {
	all []mongolock.AcquireOption
	err error
}

// add adds the option that a flag sets, if it is set. It is tried by itself, so that an error can name the flag.
func (t *terms) add(set bool, flag string, opt mongolock.AcquireOption) {
	if !set {
		return
	}
	if err := tryOptions("k", opt); err != nil && t.err == nil {
		t.err = exitf(exitUsage, "%s: %s", flag, reason(err))
	}
	t.all = append(t.all, opt)
}

// terms returns the options that these flags set.
func (f *taskFlags) terms() (t terms) {
	t.add(true, "--ttl", mongolock.TTL(f.TTL))
	t.err = errors.Join(t.err, checkMargin(f.Margin, f.TTL))
	t.add(true, "--note", mongolock.Note(f.note()))
	if f.Wait != nil && *f.Wait < 0 {
		t.err = errors.Join(t.err, exitf(exitUsage, "--wait=%v: must not be negative", *f.Wait))
	}
	if f.Wait != nil && *f.Wait > 0 {
		t.all = append(t.all, mongolock.MaxWait(*f.Wait))
	}
	return t
}

// tryOptions says what is wrong with a key or options.
func tryOptions(key string, opts ...mongolock.AcquireOption) error {
	_, err := inside.TermsOf(nil, key, opts)
	return err
}

func checkKey(key string) error {
	if err := tryOptions(key); err != nil {
		return exitf(exitUsage, "KEY: %s", reason(err))
	}
	return nil
}

// A task is a command that run, once or paths lock runs while a lock is held.
type task struct {
	*taskFlags
	key  string   // the lock, as messages name it
	path string   // the program's
	env  []string // in addition to this process's own

	begin func() error // called when signals go to the command; an error says that one came before
}

// A held is the lock that a command is run under. A *mongolock.Lease is one.
type held interface {
	Err() error
	Done() <-chan struct{}
	Remaining() time.Duration
}

// newTask finds the program, before any lock is asked for.
func (a *app) newTask(key string, f *taskFlags) (task, error) {
	path, err := exec.LookPath(f.Command[0])
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return task{}, exitf(exitNotFound, "%s: not found", f.Command[0])
	case err != nil:
		return task{}, exitf(exitNotRun, "%s: %s", f.Command[0], sentence(errors.Unwrap(err)))
	}
	return task{taskFlags: f, key: key, path: path, begin: a.begun}, nil
}

// begun ends the time in which signals end a.ctx, and returns an error if one came.
func (a *app) begun() error {
	a.caught()
	if s := signalled(a.ctx); s != 0 {
		return &exitError{code: exitSignal + int(s), told: true, unbegun: true}
	}
	return nil
}

// under runs the task while a lock is held, and then gives the lock back.
func (a *app) under(t task, l interface {
	held
	Release() error
}) error {
	err := hold(t, l, a.teller(t.key))
	if ended := l.Err(); errors.Is(ended, mongolock.ErrLost) && !errors.Is(ended, mongolock.ErrMaxHold) && !errors.Is(ended, mongolock.ErrBroken) {
		a.ends = nil // the lease has run out: the lock is free soon, and the server may be out of reach
		return err
	}
	if released := l.Release(); released != nil && !errors.Is(released, mongolock.ErrLost) {
		a.teller(t.key).tell("unreleased", fmt.Sprintf("%s is not given back and stays taken for %v at most: %s", t.key, t.TTL, sentence(released)), nil)
		a.ends = nil
	}
	return err
}

// refused returns the error of a command that was not run, because what by describes had its lock.
func (f *taskFlags) refused(err error, try bool, name, by string) error {
	switch {
	case try:
		return exitf(exitHeld, "%s is held%s", name, by)
	case f.Wait == nil: // a signal has ended the wait
		return err
	}
	return exitf(exitTimeout, "%s is still held after %v%s", name, *f.Wait, by)
}

// decimal is a token in JSON: it is greater than the 2^53 to which jq and JavaScript count.
func decimal(token int64) string { return strconv.FormatInt(token, 10) }

// tells adds the variables that tell the command about its lock.
func (t *task) tells(left, maxHold time.Duration, more ...string) {
	if maxHold > 0 {
		left = maxHold // the hold began a round trip ago: whole seconds allow for that
	}
	t.env = slices.Concat(more, []string{"MONGOLOCK_KEY=" + t.key, "MONGOLOCK_DEADLINE=" + strconv.FormatInt(time.Now().Add(left).Unix(), 10)})
}

// environment is the command's: this process's own without passwords, and what t.tells.
func (t *task) environment() []string {
	own := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, uri, _ := strings.Cut(v, "=")
		if t.PassURI || name != "MONGOLOCK_URI" && name != "MONGODB_URI" {
			return false
		}
		return strings.Contains(uri, "@") && passwordIn(uri) != ""
	})
	return append(own, t.env...)
}

// noteOf returns the command's name and the plain words after it, up to the first option: that is what
// is run, such as the script of an interpreter. What follows may be secret.
func noteOf(command []string) string {
	words := []string{clean(command[0])}
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
