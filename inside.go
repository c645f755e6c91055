package mongolock

import (
	"time"

	"github.com/mongolock/mongolock/internal/inside"
)

// within returns the client that a locker is or embeds, or nil.
func within(locker any) *Client {
	if c, ok := locker.(interface{ client() *Client }); ok {
		return c.client()
	}
	return nil
}

func (c *Client) client() *Client { return c }

func init() {
	inside.Leases = func(client any) (leases []any) {
		for _, h := range client.(*Client).queues.unsettled() {
			leases = append(leases, &h.lease)
		}
		return leases
	}
	inside.Observer = func(locker any) any {
		if c := within(locker); c != nil && c.observer != nil {
			return c.observer
		}
		return unobserved{}
	}
	inside.TermsOf = func(locker any, key string, options any) (inside.Terms, error) {
		conf, _ := newConfig(nil)
		if c := within(locker); c != nil {
			conf = c.config
		}
		t, err := conf.ask(key, options.([]AcquireOption))
		if err != nil {
			return inside.Terms{}, err
		}
		return inside.Terms{Mode: t.mode, Limit: t.limit, MinHold: t.minHold, MaxWait: t.maxWait, Logger: conf.logger, NoRenewal: t.noRenewal, Note: t.note}, nil
	}
	inside.Look = func(client any, key string) inside.Waiting {
		qs := &client.(*Client).queues
		qs.mu.Lock()
		defer qs.mu.Unlock()
		q := qs.byKey.All[key]
		if q == nil || q.head == nil {
			return inside.Waiting{}
		}
		return inside.Waiting{
			Refused: q.head.refused && !q.head.asking,
			Asleep:  q.view.Seen != nil && !q.head.asking && !q.view.Woken(),
		}
	}
	inside.FeedLinger = func(client any, d time.Duration) { client.(*Client).watch.Linger = d }
	inside.Honoured = func(lease any) time.Time {
		h := lease.(*Lease).holding
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.client.clock.Time(h.trusted().Add(h.term.Margin()))
	}
	inside.Abandon = func(lease any) {
		h := lease.(*Lease).holding
		h.mu.Lock()
		defer h.mu.Unlock()
		h.release.state = settled
	}
}
