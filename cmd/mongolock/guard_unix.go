//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/mongolock/mongolock/internal/monotonic"
)

// The guard is a second process of this program. It knows until when the lease is good, and
// ends what the command has started at that time if the first process, the holder, does not:
// because the holder is stopped, or was killed. They exchange lines through two pipes:
//
//	guard → holder   ready           it is there
//	guard → holder   ask 17          until when is the lease good?
//	holder → guard   left 17 9.5e9   so many nanoseconds
//	guard → holder   knows           it has the first answer: the command may begin
//	command → guard  group 4711      the group to end
//	guard → holder   over            it ends the command, because the lease is over
//	holder → guard   ending          the holder has sent SIGTERM itself
//	holder → guard   done            nothing is left: the guard is not needed any more
//
// The guard counts the remaining time from before it asked, on its own clock. An answer that is
// late, or a holder that was stopped before it answered, makes the guard's deadline too early,
// never too late. If the pipe ends without "done", the holder is dead.
//
// A holder that is stopped when the command begins could report neither the time nor the group.
// So the guard gets the time before that, and the command's own process reports the group
// before it becomes the command.
const (
	guardName   = "mongolock-guard"
	starterName = "mongolock-starter"
)

// asAnother does the work of the guard, or of the process that becomes the command, if this
// process was started as one of them.
func asAnother() (status int, is bool) {
	switch os.Args[0] {
	case guardName:
		return guard(), true
	case starterName:
		return become(os.Args[1:]), true
	}
	return 0, false
}

// A watchman is the guard's side.
type watchman struct {
	clock        monotonic.Clock
	margin, tick time.Duration
	mark         string // of what the command starts
	t            teller

	asked    map[int64]monotonic.Moment
	question int64
	deadline monotonic.Moment // none until the first answer

	group   int
	members group // what the command has started
	foreign bool  // it was said that they became another user
	gone    bool  // it had no member: another group may get its ID
	ending  bool  // the holder has sent SIGTERM
	orphan  bool  // the holder is dead
	kill    monotonic.Moment
}

// guard is the main function of the guard.
func guard() int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM)
	rename()
	var margin, ttl time.Duration
	w := &watchman{clock: monotonic.CountingSleep(monotonic.NewMeter()), asked: map[int64]monotonic.Moment{}, t: teller{w: os.Stderr}}
	if _, err := fmt.Sscan(strings.Join(os.Args[1:], " "), &margin, &ttl, &w.mark, &w.t.asJSON); err != nil {
		return exitFailed
	}
	w.margin, w.tick = margin, max(ttl/20, 10*time.Millisecond)
	lines := make(chan string)
	go func() { // ends with the process
		for scan := bufio.NewScanner(os.Stdin); scan.Scan(); {
			lines <- scan.Text()
		}
		close(lines)
	}()
	fmt.Println("ready")
	return w.run(lines)
}

func (w *watchman) run(lines <-chan string) int {
	w.ask()
	for {
		select {
		case line, ok := <-lines:
			switch {
			case !ok && w.group == 0, line == "done":
				return 0
			case !ok:
				w.orphan, lines = true, nil
			default:
				w.hear(line)
			}
		case <-time.After(w.pause()):
			if !w.orphan {
				w.ask()
			}
		}
		if w.act() {
			return 0
		}
	}
}

// pause returns how long to wait for a line: less when the deadline is near, so that a
// last-moment renewal is heard.
func (w *watchman) pause() time.Duration {
	fine := max(w.margin/20, 2*time.Millisecond)
	if w.orphan || w.ending || w.deadline != 0 && w.clock.Until(w.deadline) < w.tick {
		return min(fine, w.tick)
	}
	return min(w.tick, time.Second) // timers do not count while a machine is suspended
}

func (w *watchman) ask() {
	if len(w.asked) > 100 {
		return // the holder is stopped
	}
	w.question++
	w.asked[w.question] = w.clock.Now()
	fmt.Println("ask", w.question)
}

func (w *watchman) hear(line string) {
	var question, left int64
	if _, err := fmt.Sscanf(line, "left %d %d", &question, &left); err == nil {
		sent, ok := w.asked[question]
		delete(w.asked, question)
		if ok && left > 0 {
			if w.deadline == 0 {
				fmt.Println("knows")
			}
			w.deadline = sent.Add(time.Duration(left))
		}
		return
	}
	if n, err := fmt.Sscanf(line, "group %d", &w.group); err == nil && n == 1 {
		w.members = startedUnder(w.group, w.mark)
		return
	}
	if line == "ending" {
		w.ending = true
	}
}

// act ends the group when that is due, and reports whether it has ended.
func (w *watchman) act() bool {
	if w.group == 0 {
		return false
	}
	now := w.clock.Now()
	over := w.deadline != 0 && now >= w.deadline.Add(w.margin/8) // the holder has the first chance
	if !w.orphan && !over {
		w.kill = 0
		return false
	}
	if !w.gone {
		living, _ := w.members.look()
		w.gone = !living
	}
	if w.gone {
		return w.orphan
	}
	if w.kill == 0 {
		w.kill = now.Add(w.margin / 2)
		if w.deadline != 0 {
			w.kill = min(w.kill, w.deadline.Add(w.margin/2))
		}
		if !w.orphan {
			fmt.Println("over") // before the command can have ended by it
		}
		if !w.ending {
			w.signal(syscall.SIGTERM, syscall.SIGCONT)
		}
	}
	if now >= w.kill {
		w.signal(syscall.SIGKILL)
	}
	return false // the next look tells whether that was the end
}

func (w *watchman) signal(all ...syscall.Signal) {
	if text := foreignText(w.group, w.members.signal(all...)); text != "" && !w.foreign {
		w.foreign = true
		w.t.tell("foreign", "guard: "+text, nil)
	}
}
