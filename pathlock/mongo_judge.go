package pathlock

import (
	"context"
	"strings"

	"github.com/mongolock/mongolock/internal/knob"
	"github.com/mongolock/mongolock/internal/mongobase"
)

// A verdict is what a request finds in its way.
type verdict struct {
	held  Affecting // granted locks
	older []*record // pending locks that go first
	drop  []*record // what has run out, and pending locks that come later
	now   Clock
}

// judge sorts what was seen. Without a lock of its own (mine is nil) every pending lock
// is left alone.
func (m *mongoTree) judge(ctx context.Context, r Request, mine *record, s *sight) (v verdict, err error) {
	if v.now, err = m.clock(mongobase.Bare(ctx), s.records); err != nil {
		return v, err
	}
	held := NewDocument()
	for i := range s.records {
		o := &s.records[i]
		switch {
		case mine != nil && o.Token == mine.Token, !overlap(r, o.Lock):
		case o.ranOut(v.now):
			v.drop = append(v.drop, o)
		case o.state == stateGranted:
			held.index.put(o.Lock)
		case o.state != statePending || mine == nil || knob.PathWithoutOrder:
		case o.before(mine):
			v.older = append(v.older, o)
		default:
			v.drop = append(v.drop, o)
		}
	}
	v.held = held.conflicts(r, v.now)
	return v, nil
}

// overlap reports whether a request and a lock overlap and are not both shared. What the
// find answered may not, as hashes may be equal.
func overlap(r Request, l Lock) bool {
	if r.Mode == Shared && l.Mode == Shared {
		return false
	}
	return l.Covers(r.Path) || r.Depth == Infinity && below(l.Path, r.Path)
}

// before is the order of pending locks: by the server's clock at their announcement, and
// then by token. Both sides compute the same, from the same two documents.
func (r *record) before(o *record) bool {
	if !r.at.Equal(o.at) {
		return r.at.Before(o.at)
	}
	return strings.Compare(r.Token, o.Token) < 0
}
