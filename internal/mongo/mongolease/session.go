package mongolease

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/mongolock/mongolock/internal/mongo/mongobase"
	"github.com/mongolock/mongolock/store"
)

// A holder under a session has two ends: its own, and the session's. Each is judged by itself,
// by the same rules, and the holder is over when both have passed.

// judgeSessions keeps those holders whose own end has passed that are under no session, or
// under one that is over for good.
func (s *Steps[R, X]) judgeSessions(ctx context.Context, seen R, over map[string]bool) (map[string]bool, error) {
	var ids []string
	marks := slices.DeleteFunc(seen.Marks(), func(m mongobase.Mark) bool { return m.Session == "" || !over[m.ID] })
	for _, m := range marks {
		ids = append(ids, m.Session)
	}
	if len(ids) == 0 {
		return over, nil
	}
	slices.Sort(ids) // in a fixed order, so that a simulation can be repeated
	ended, err := s.Sessions.Over(ctx, slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	for _, m := range marks {
		if !ended[m.Session] {
			delete(over, m.ID)
		}
	}
	return over, nil
}

// prolong shows a holder under a session as lasting as long as the session does.
func (s *Steps[R, X]) prolong(h *store.Holder, now time.Time) {
	if h.Session == "" || s.Sessions == nil {
		return
	}
	expireAt, knownBy, over := s.Sessions.Ends(h.Session, now)
	if over {
		return
	}
	known := slices.MaxFunc([]time.Time{cmp.Or(h.KnownBy, h.ExpireAt), cmp.Or(knownBy, expireAt)}, time.Time.Compare)
	if expireAt.After(h.ExpireAt) {
		h.ExpireAt = expireAt
	}
	if h.KnownBy = known; known.Equal(h.ExpireAt) {
		h.KnownBy = time.Time{}
	}
}

// learn reads the sessions of the records that will be shown.
func (s *Steps[R, X]) learn(ctx context.Context, seen ...R) {
	if s.Sessions == nil {
		return
	}
	var ids []string
	for _, one := range seen {
		for _, m := range one.Marks() {
			if m.Session != "" {
				ids = append(ids, m.Session)
			}
		}
	}
	if len(ids) > 0 {
		slices.Sort(ids)
		s.Sessions.Learn(ctx, slices.Compact(ids))
	}
}
