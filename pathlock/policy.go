package pathlock

import (
	"fmt"
	"time"
)

// A Policy picks a lock's timeout from the wishes of a client, the preferred one first.
// There may be none. It returns MinTimeout to MaxTimeout, or Infinite.
type Policy func(wishes []time.Duration) time.Duration

// Limits is a policy that picks the first wish that it allows.
type Limits struct {
	Default  time.Duration // if there is no wish; 0: ten minutes, or the nearest that is allowed
	Least    time.Duration // 0: MinTimeout
	Most     time.Duration // 0: MaxTimeout
	Infinite bool          // allow locks without end
}

// Pick returns the first wish within the limits. If there is none, it returns the limit that is
// nearest to the first wish; for Infinite that is Most.
func (l Limits) Pick(wishes []time.Duration) time.Duration {
	l = l.filled()
	for _, wish := range wishes {
		if wish == Infinite && l.Infinite || wish >= l.Least && wish <= l.Most {
			return wish
		}
	}
	switch {
	case len(wishes) == 0:
		return l.Default
	case wishes[0] == Infinite:
		return l.Most
	}
	return min(max(wishes[0], l.Least), l.Most)
}

func (l Limits) filled() Limits {
	if l.Least == 0 {
		l.Least = MinTimeout
	}
	if l.Most == 0 {
		l.Most = MaxTimeout
	}
	if l.Default == 0 {
		l.Default = min(max(10*time.Minute, l.Least), l.Most)
	}
	return l
}

func (l Limits) check() error {
	f := l.filled()
	in := func(d time.Duration) bool { return d >= MinTimeout && d <= MaxTimeout }
	switch {
	case !in(f.Least):
		return fmt.Errorf("pathlock: WithLimits: Least is %v: must be %v to %v", l.Least, MinTimeout, MaxTimeout)
	case !in(f.Most):
		return fmt.Errorf("pathlock: WithLimits: Most is %v: must be %v to %v", l.Most, MinTimeout, MaxTimeout)
	case f.Least > f.Most:
		return fmt.Errorf("pathlock: WithLimits: Least, %v, is more than Most, %v", f.Least, f.Most)
	case f.Default == Infinite && !f.Infinite:
		return fmt.Errorf("pathlock: WithLimits: Default is Infinite, which these limits do not allow")
	case f.Default != Infinite && (f.Default < f.Least || f.Default > f.Most):
		return fmt.Errorf("pathlock: WithLimits: Default is %v: must be %v to %v", l.Default, f.Least, f.Most)
	}
	return nil
}

// pick asks the policy, and checks its answer.
func (t *Tree) pick(wishes []time.Duration) (time.Duration, error) {
	timeout := t.policy(wishes)
	if !isTimeout(timeout) {
		return 0, fmt.Errorf("pathlock: the policy picked %v: must be %v to %v, or Infinite", timeout, MinTimeout, MaxTimeout)
	}
	return timeout, nil
}
