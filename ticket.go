package mongolock

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mongolock/mongolock/internal/inside"
	"github.com/mongolock/mongolock/store"
)

// ticketMark begins every ticket. Its digit is the version of the format.
const ticketMark = "mongolock1."

// A ticket is the text that Detach returns, as JSON encoded in base64.
type ticket struct {
	Key   string        `json:"k"`
	ID    string        `json:"i"`
	Token int64         `json:"t"`
	TTL   time.Duration `json:"d"`
	Keep  time.Duration `json:"h,omitempty"` // what was left of MinHold
	Note  string        `json:"n,omitempty"`
}

func (t ticket) String() string {
	text, _ := json.Marshal(t) // strings and numbers: it cannot fail
	return ticketMark + base64.RawURLEncoding.EncodeToString(text)
}

func parseTicket(s string) (ticket, error) {
	var t ticket
	body, ok := strings.CutPrefix(s, ticketMark)
	if !ok {
		return t, errors.New("mongolock: resume: not a Detach ticket, or made by a newer version")
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err == nil {
		err = errors.Join(checkText("key", t.Key, 1, maxKey), checkText("ID", t.ID, 1, maxKey), checkText("note", t.Note, 0, maxNote))
	}
	if err == nil && (t.TTL < minTTL || max(t.TTL, t.Keep) > maxTTL || t.Keep < 0) {
		err = fmt.Errorf("TTL of %v, MinHold of %v", t.TTL, t.Keep)
	}
	if err != nil {
		return t, fmt.Errorf("mongolock: resume: broken ticket: %w", err)
	}
	return t, nil
}

// Detach renews the lease once and ends it here without freeing the key. With the ticket any
// process can Resume it within the TTL: keep the ticket as safe as the lease itself. After an
// error the lease goes on as before, unless Err says otherwise. A lease that shares its key, or
// that belongs to a scheduled run, cannot be detached (errors.ErrUnsupported).
func (l *Lease) Detach(ctx context.Context) (text string, err error) {
	h := l.holding
	if h.terms.shares() {
		return "", l.fault("detach", fmt.Errorf("%w: the lease is %s, and only one that has its key alone can be resumed", errors.ErrUnsupported, h.terms.mode))
	}
	why, is := h.values.Value(inside.Unresumable{}).(error) // of the package that acquired the lease
	if is {
		return "", l.fault("detach", why)
	}
	if err := l.Renew(ctx); err != nil {
		return "", fmt.Errorf("mongolock: detach: %w", err)
	}
	if !h.end(ErrDetached) {
		return "", l.fault("detach", l.Err())
	}
	h.settle(ErrDetached)
	keep := max(0, h.terms.minHold-h.client.clock.Since(h.granted))
	return ticket{Key: h.ref.Key, ID: h.ref.ID, Token: h.token, TTL: h.terms.ttl, Keep: keep, Note: h.terms.note}.String(), nil
}

// Resume takes over a lease that was ended by Detach, in any process. The new lease has the
// same key and token, and an ID of its own. If two calls resume one ticket, one succeeds. The
// other gets ErrLost, as does a call that comes after the TTL (through a mongos: after another
// process has had the key). The TTL is that of the old lease unless an option sets it. What was left
// of its MinHold begins again. The client's other defaults apply. If the outcome is unknown the ticket
// may be tried again.
func (c *Client) Resume(ctx context.Context, text string, opts ...Option) (*Lease, error) {
	ticket, err := parseTicket(text)
	if err != nil {
		return nil, err
	}
	base := c.terms
	base.ttl, base.note, base.minHold = ticket.TTL, ticket.Note, ticket.Keep
	each := make([]AcquireOption, len(opts))
	for i, o := range opts {
		if o == nil {
			return nil, errors.New("mongolock: resume: a nil Option")
		}
		each[i] = o
	}
	t, err := c.apply(base, each)
	if err != nil {
		return nil, err
	}
	if err := c.ready(ctx, "resume", ticket.Key); err != nil {
		return nil, err
	}
	ctx, end := c.observe(ctx, OpTransfer, ticket.Key, t)
	lease, err := c.tryOnce(&waiter{ctx: ctx, key: ticket.Key, terms: t, resumes: &ticket})
	if errors.Is(err, store.ErrGone) || errors.As(err, new(*store.BrokenError)) {
		err = &fault{op: "resume", key: ticket.Key, err: fmt.Errorf("%w: %w", ErrLost, err)}
	} else if err != nil {
		err = failed("resume", ticket.Key, err)
	}
	end(Outcome{Err: err, Token: ticket.Token, Count: 1})
	return lease, err
}
