package schedule

import (
	"container/heap"
	"time"
)

// An item is something to do for a job at some time: claim its fire, or look whether a
// run has died.
type item struct {
	at    time.Time // by the store's clock
	job   *job
	watch bool // look whether a run has died
}

// A queue is a heap of items, the earliest first.
type queue []item

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(item)) }

func (q *queue) Pop() any {
	last := len(*q) - 1
	it := (*q)[last]
	(*q)[last] = item{} // do not keep the job
	*q = (*q)[:last]
	return it
}

// put adds an item to the queue, unless its job was removed.
func (s *Scheduler) put(it item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it.job.removed {
		return
	}
	heap.Push(&s.queue, it)
	if s.queue[0].job == it.job {
		s.nudge()
	}
}

// pop takes an item that is due. If none is, it returns the time until one will be.
func (s *Scheduler) pop() (it item, is bool, wait time.Duration) {
	now := s.store.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return item{}, false, time.Hour
	}
	if wait := s.queue[0].at.Sub(now); wait > 0 {
		return item{}, false, wait
	}
	return heap.Pop(&s.queue).(item), true, 0
}
