package memstore

import (
	"context"
	"maps"
	"time"

	"github.com/mongolock/mongolock/store"
)

// A session is over once it has run out: every call is one step, by one clock, and no call
// renews a session that has run out. So it need not be marked.
type session struct {
	id       string
	expireAt time.Time
	over     bool              // it was ended
	broken   map[string]string // reasons by holder ID
}

func (s *session) live(now time.Time) bool { return !s.over && s.expireAt.After(now) }

func (s *session) broke(id, reason string) {
	if s.broken == nil {
		s.broken = make(map[string]string)
	}
	s.broken[id] = reason
}

// BeginSession begins a session. The ID of an old one stays refused as long as it is
// remembered.
func (s *Store) BeginSession(ctx context.Context, of store.Session) (time.Duration, error) {
	if err := ended(ctx); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	if s.sessions[of.ID] != nil {
		return 0, store.ErrGone
	}
	if s.sessions == nil {
		s.sessions = make(map[string]*session)
	}
	s.sessions[of.ID] = &session{id: of.ID, expireAt: now.Add(of.TTL)}
	return of.TTL, nil
}

// RenewSession restarts the TTL of a session that has not run out.
func (s *Store) RenewSession(ctx context.Context, of store.Session) (store.SessionRenewed, error) {
	if err := ended(ctx); err != nil {
		return store.SessionRenewed{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	it := s.sessions[of.ID]
	if it == nil || !it.live(now) {
		return store.SessionRenewed{}, store.ErrGone
	}
	it.expireAt = later(it.expireAt, now.Add(of.TTL))
	return store.SessionRenewed{Left: of.TTL, Broken: maps.Clone(it.broken)}, nil
}

// EndSession ends a session.
func (s *Store) EndSession(ctx context.Context, id string) error {
	if err := ended(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if it := s.sessions[id]; it != nil {
		it.over = true
	}
	return nil
}

// Sweep removes the holders of sessions that are over, and forgets the sessions.
func (s *Store) Sweep(ctx context.Context) (freed []string, err error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	kept := make(map[*session]bool)
	for key, rec := range s.records {
		waited, before := len(rec.line) > 0, len(rec.holders)
		for i := len(rec.holders) - 1; i >= 0; i-- {
			switch h := &rec.holders[i]; {
			case h.session == nil || h.session.live(now):
			case h.live(now):
				kept[h.session] = true
			default:
				s.drop(key, rec, h.id)
			}
		}
		if waited && len(rec.holders) < before {
			freed = append(freed, key)
		}
	}
	maps.DeleteFunc(s.sessions, func(_ string, it *session) bool { return !it.live(now) && !kept[it] })
	return freed, nil
}

// enter puts a holder under a session, or takes it out of one, as its renewal says.
func (s *Store) enter(h *holder, r store.Renewal, now time.Time) {
	switch it := s.sessions[r.Session]; {
	case r.Alone:
		h.session = nil
	case r.Session == "":
	case it == nil || !it.live(now): // the renewal counts; the session does not
	default:
		h.session = it
	}
}
