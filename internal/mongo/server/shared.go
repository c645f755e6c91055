package server

import (
	"context"
	"sync"
)

// A Shared is a question that all callers share which ask it at one time. Its zero value is
// ready for use.
type Shared struct {
	mu    sync.Mutex // protects asked
	asked *question
}

type question struct {
	answered chan struct{} // closed when err is set
	err      error
	givenUp  bool // the caller that asked gave up: there is no answer for the others
}

// Ask calls ask, unless another caller's ask is under way: then it waits for the answer to
// that. When ctx ends first it calls ask all the same, which then says at once what it was
// waiting for, such as a server.
func (s *Shared) Ask(ctx context.Context, ask func(context.Context) error) error {
	for {
		q, mine := s.join()
		if mine {
			q.err = ask(ctx)
			q.givenUp = q.err != nil && ctx.Err() != nil
			s.mu.Lock()
			s.asked = nil
			s.mu.Unlock()
			close(q.answered)
			return q.err
		}
		select {
		case <-q.answered:
			if !q.givenUp {
				return q.err
			}
		case <-ctx.Done():
			return ask(ctx)
		}
	}
}

func (s *Shared) join() (q *question, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		s.asked, mine = &question{answered: make(chan struct{})}, true
	}
	return s.asked, mine
}
