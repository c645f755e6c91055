package schedule

import (
	"context"
	"time"

	"github.com/mongolock/mongolock/internal/backoff"
)

const (
	// pollEvery is how often a process asks which jobs were changed. After its start, and after a change, which
	// another one often follows, it asks sooner: after 2, 4, 8 and 16 s.
	pollEvery = 30 * time.Second
	pollFirst = 2 * time.Second

	// asksLast is how long before the last answer a poll still finds a change.
	asksLast = 5 * time.Minute

	// askedLate is how much later than MaxLate says a call of RunNow may be found: by the second poll.
	askedLate = 2 * pollEvery
)

// poll finds the jobs that people have changed, or that have new plans, until ctx ends.
func (s *Scheduler) poll(ctx context.Context) {
	answered := s.store.Now() // the last poll
	for pause := pollFirst; backoff.Sleep(ctx, pause); pause = min(2*pause, pollEvery) {
		s.mu.Lock()
		known := make(map[string]*job, len(s.jobs))
		names := make([]string, 0, len(s.jobs))
		for name, j := range s.jobs {
			known[name] = j
			names = append(names, name)
		}
		s.mu.Unlock()
		if len(names) == 0 {
			continue
		}
		now := s.store.Now()
		if now.Before(answered) { // the server's clock has stepped back
			answered = now
		}
		changed, err := s.store.Changed(ctx, names, answered.Add(-asksLast))
		switch {
		case err == nil:
			answered = now
		case ctx.Err() == nil:
			s.logger.Warn("schedule: could not ask which jobs were changed", "error", err)
		}
		for name, at := range changed { // under a collation also others than those asked for
			j := known[name]
			if j == nil {
				continue
			}
			s.mu.Lock()
			news := at.After(j.changed)
			s.mu.Unlock()
			if news {
				pause = pollFirst / 2
				s.readAt(j, s.store.Now())
			}
		}
	}
}
