package pathlock

import (
	"fmt"
	"time"
)

// Limits bound the timeout of a lock, which is the first of the wishes in its Request that they
// allow. If they allow none, it is the limit that is nearest to the first wish; for Infinite that is
// Most.
type Limits struct {
	Default  time.Duration // if there is no wish; 0: ten minutes, or the nearest that is allowed
	Least    time.Duration // 0: MinTimeout
	Most     time.Duration // 0: MaxTimeout
	Infinite bool          // allow locks without end
}

// pick returns the timeout for some wishes. The limits have their defaults filled in.
func (l Limits) pick(wishes []time.Duration) time.Duration {
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
