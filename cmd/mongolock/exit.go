package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"syscall"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/doclock"
	"github.com/mongolock/mongolock/once"
)

// The exit codes. They are those of sysexits.h where it has one, so that they seldom collide
// with the codes of a command under run.
const (
	exitUsage       = 64
	exitForeign     = 65
	exitNothing     = 66
	exitUnreachable = 69
	exitFailed      = 70
	exitLost        = 71
	exitElsewhere   = 72
	exitChanged     = 73
	exitUnrecorded  = 74
	exitHeld        = 75
	exitTimeout     = 76
	exitRights      = 77
	exitDeclined    = 78
	exitNotRun      = 126
	exitNotFound    = 127
	exitSignal      = 128 // plus the signal's number
)

// The codes with which doctor exits.
const (
	exitDoctorWarns = 1
	exitDoctorFails = 2
)

const exitHelp = `Exit codes:
   0      done; run, once and paths lock exit with the code of the command that they ran
   64     wrong usage
   65     the key is not a lock of this library, or is in use in another mode
   66     nobody holds the key to break, or there is no such job, record or document
   69     no server can be reached
   70     any other failure
   71     run, once, paths lock: the lease was lost, and the command was ended
   72     once: another process ran the command, and it failed there
   73     once: it was done with other content
   74     once: the command ran, but that could not be recorded: it may run again
   75     --try: the key or path is held (run: or what -E says)
   76     --wait: it was still held after that time (run: or what -E says)
   77     the server refuses the user or the command
   78     break, paths break: not confirmed
   126    the command cannot be run
   127    there is no such command
   128+n  the command ended by signal n
   1, 2   doctor: the worst line is a warning, a failure
   1-3    jobs check: see its help`

// An exitError ends the program with a code.
type exitError struct {
	code int
	text string // if it is empty, nothing is printed

	signal syscall.Signal // the signal that ended the command, or 0
	told   bool           // the command had been sent a signal to end

	unbegun bool // the command was not started
}

func (e *exitError) Error() string { return e.text }

func exitf(code int, format string, args ...any) error {
	return &exitError{code: code, text: fmt.Sprintf(format, args...)}
}

// unbegun is exitf for a command that was not started.
func unbegun(code int, format string, args ...any) error {
	return &exitError{code: code, text: fmt.Sprintf(format, args...), unbegun: true}
}

// verdict returns the exit code for an error, and what to print about it.
func verdict(err error) (code int, say string) {
	if err == nil {
		return 0, ""
	}
	var e *exitError
	if errors.As(err, &e) {
		return e.code, e.text
	}
	say = reason(err)
	for _, v := range []struct {
		of   error
		code int
	}{
		{once.ErrFailed, exitElsewhere}, {once.ErrChanged, exitChanged}, {once.ErrUnrecorded, exitUnrecorded},
		{mongolock.ErrLost, exitLost}, {mongolock.ErrForeign, exitForeign}, {mongolock.ErrModeMismatch, exitForeign},
		{mongolock.ErrHeld, exitHeld}, {doclock.ErrNotFound, exitNothing}, {once.ErrNotFound, exitNothing},
	} {
		if errors.Is(err, v.of) {
			return v.code, say
		}
	}
	var refused mongo.ServerError
	const invalidNamespace = 73
	switch {
	case refusesUser(err):
		return exitRights, say
	case errors.As(err, &refused) && refused.HasErrorCode(invalidNamespace):
		return exitUsage, say
	case mongo.IsTimeout(err), mongo.IsNetworkError(err), errors.Is(err, context.DeadlineExceeded), errors.As(err, new(*net.DNSError)):
		return exitUnreachable, say
	}
	return exitFailed, say
}

// conclude prints what there is to say of an error, and returns the exit code. If the command was ended by a
// signal, it ends this process in the same way.
func (a *app) conclude(err error) int {
	code, say := verdict(err)
	if say != "" {
		a.teller("").tell("error", say, map[string]any{"code": code})
	}
	var e *exitError
	if errors.As(err, &e) && e.signal != 0 {
		raise(e.signal)
	}
	return code
}

// refusesUser reports whether the server refused the user or the command.
func refusesUser(err error) bool {
	const unauthorized, failed = 13, 18
	var refused mongo.ServerError
	return errors.As(err, &refused) && (refused.HasErrorCode(unauthorized) || refused.HasErrorCode(failed)) ||
		strings.Contains(err.Error(), "auth error")
}

// sentence returns an error on one line.
func sentence(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// reason returns an error on one line, without the names of the library and the package before it.
func reason(err error) string {
	text := sentence(err)
	for _, name := range []string{"once: ", "pathlock: ", "schedule: ", "assign: ", "mongolock: "} { // the last may be in the others
		text = strings.TrimPrefix(text, name)
	}
	return text
}

// version returns the version of the module, as the toolchain knows it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "mongolock (unknown version)"
	}
	return "mongolock " + info.Main.Version
}
