package schedule

import (
	"container/heap"
	"time"

	"github.com/mongolock/mongolock/schedule/internal/jobs"
)

// A task says what to do for an item.
type task int

const (
	claimNext task = iota // claim the job's next due time, and run it
	readAgain             // read the job's document: did a run die, was a due time given back?
	repeatRun             // go on with a run that is over
)

// An item is a task of a job, due at some time.
type item struct {
	at   time.Time // by the store's clock
	job  *job
	task task
	dead jobs.Run // for repeatRun: the run that is over
	seq  int64    // for repeatRun: the number of the last claim when that was seen
	jobs []*job   // for readAgain, once it is out of the queue: job and others
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
	s.putLocked(it)
}

// putLocked is put, with s.mu held.
func (s *Scheduler) putLocked(it item) {
	if it.job.removed {
		return
	}
	heap.Push(&s.queue, it)
	if s.queue[0].job == it.job {
		s.nudge()
	}
}

// untilDue returns how long nothing will be due; zero or less if something is.
func (s *Scheduler) untilDue() time.Duration {
	now := s.store.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return time.Hour
	}
	return s.queue[0].at.Sub(now)
}

// pop takes the first item that is due, if there is one. A read takes along all others
// that are due within a second: one command reads all of their jobs.
func (s *Scheduler) pop() (it item, due bool) {
	now := s.store.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 || s.queue[0].at.After(now) {
		return item{}, false
	}
	it = heap.Pop(&s.queue).(item)
	if it.task == readAgain {
		it.jobs = append([]*job{it.job}, s.takeReads(now.Add(time.Second), chunkSize-1)...)
		for _, j := range it.jobs {
			j.reading = false
		}
	}
	return it, true
}

// take takes the job's own item out of the queue, so that no other goroutine claims its
// due times. It reports false if one does.
func (s *Scheduler) take(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, it := range s.queue {
		if it.job == j && it.task == claimNext {
			heap.Remove(&s.queue, i)
			return true
		}
	}
	return false
}

// readAt schedules a read of the job's document. Of two reads of one job the earlier stays.
func (s *Scheduler) readAt(j *job, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !j.reading {
		j.reading = true
		s.putLocked(item{at: at, job: j, task: readAgain})
		return
	}
	for i, it := range s.queue {
		if it.job == j && it.task == readAgain && at.Before(it.at) {
			s.queue[i].at = at
			heap.Fix(&s.queue, i)
			s.nudge()
			return
		}
	}
}

// takeReads takes the reads out of the queue that are due by then, but at most so many. It
// is called with s.mu held.
func (s *Scheduler) takeReads(by time.Time, most int) (taken []*job) {
	rest := s.queue[:0]
	for _, it := range s.queue {
		if it.task == readAgain && !it.at.After(by) && len(taken) < most {
			taken = append(taken, it.job)
		} else {
			rest = append(rest, it)
		}
	}
	clear(s.queue[len(rest):])
	s.queue = rest
	heap.Init(&s.queue)
	return taken
}
