package faultproxy

import (
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongolock/mongolock/internal/test/mongo/wire"
)

// A Matcher selects commands. It is a value: each method returns a narrower Matcher.
type Matcher struct {
	names []string
	where []func(bson.Raw) bool
	skip  int
	take  int // 0: no end
}

// Command matches commands by name, in upper and lower case. Without a name it matches every
// command, the driver's own hello included.
func Command(names ...string) Matcher { return Matcher{names: names} }

// Where also requires that f returns true. f gets the whole command as the client sent it,
// with document sequences as arrays ("documents" of an insert, "updates", "deletes") and with
// lsid, txnNumber and $db. Several goroutines may call f at once. f must not keep the command.
func (m Matcher) Where(f func(cmd bson.Raw) bool) Matcher {
	m.where = append(m.where[:len(m.where):len(m.where)], f)
	return m
}

// Nth matches only the nth command that m matches, counted from 1 and from the making of the
// rule.
func (m Matcher) Nth(n int) Matcher {
	m.skip, m.take = m.skip+n-1, 1
	return m
}

// Next matches only the first n commands that m matches.
func (m Matcher) Next(n int) Matcher {
	m.take = n
	return m
}

// After skips the first n commands that m matches.
func (m Matcher) After(n int) Matcher {
	m.skip += n
	return m
}

func (m Matcher) matches(name string, cmd func() bson.Raw) bool {
	named := len(m.names) == 0
	for _, n := range m.names {
		named = named || strings.EqualFold(n, name)
	}
	if !named {
		return false
	}
	for _, f := range m.where {
		if doc := cmd(); doc == nil || !f(doc) {
			return false
		}
	}
	return true
}

// A Rule is a Matcher with its Actions, on a Proxy.
type Rule struct {
	proxy   *Proxy
	matcher Matcher
	actions []Action

	fired    latch
	applied  latch
	released latch

	mu   sync.Mutex // protects seen and hits; nothing is called under it
	seen int
	hits int
}

// Fired returns a channel that is closed when the rule's first action first takes effect: for
// an action on commands when the command has arrived; for an action on replies when the
// server has applied the command and its reply has arrived. When Fired is closed, a command
// to be held is held.
func (r *Rule) Fired() <-chan struct{} { return r.fired.ch }

// Applied returns a channel that is closed when the server has first answered a command that
// the rule matched, whether or not the client gets the reply. After Release it tells when the
// late command has been answered.
func (r *Rule) Applied() <-chan struct{} { return r.applied.ch }

// Hits returns how many commands the rule has matched.
func (r *Rule) Hits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hits
}

// Release passes on all that the rule holds or delays, now and later.
func (r *Rule) Release() { r.released.open() }

// Remove ends the rule. It matches nothing more, and what it holds is passed on.
func (r *Rule) Remove() {
	r.proxy.forget(r)
	r.Release()
}

// take reports whether r matches this command, and counts it if so.
func (r *Rule) take(name string, cmd func() bson.Raw) bool {
	if !r.matcher.matches(name, cmd) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	n := r.seen - r.matcher.skip
	if n < 1 || r.matcher.take > 0 && n > r.matcher.take {
		return false
	}
	r.hits++
	return true
}

// match counts the command in m. It returns an exchange if rules apply to the command or to its
// reply, else nil.
func (p *Proxy) match(c *conn, m *wire.Message) *exchange {
	name := m.Command()
	p.mu.Lock()
	p.counted[name]++
	p.mu.Unlock()

	x := &exchange{conn: c, name: name, hello: isHello(name)}
	command := func() bson.Raw {
		if x.command == nil {
			x.command, _ = m.Document()
		}
		return x.command
	}
	for _, r := range *p.rules.Load() {
		if !r.take(name, command) {
			continue
		}
		command() // labels need it later
		for _, a := range r.actions {
			x.acts = append(x.acts, act{a, r})
			x.late = x.late || a.late
		}
	}
	if !x.hello && len(x.acts) == 0 {
		return nil
	}
	x.late = x.late && m.Flags&wire.FlagExhaustAllowed == 0
	return x
}

// A latch is a channel that may be closed more than once.
type latch struct {
	ch   chan struct{}
	once sync.Once
}

func (l *latch) open() { l.once.Do(func() { close(l.ch) }) }
