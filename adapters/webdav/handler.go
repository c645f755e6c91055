package webdavlock

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/webdav"

	"github.com/mongolock/mongolock/pathlock"
)

// Handler serves h with these locks, in place of h.LockSystem. An answer 423 (Locked) then names the
// locks in the way, as RFC 4918 asks (§16): to LOCK as no-conflicting-lock, to other methods as
// lock-token-submitted. A webdav.Handler alone answers with a word.
func (s *LockSystem) Handler(h *webdav.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := *h
		if r.Method == http.MethodGet || r.Method == http.MethodHead { // they meet no lock, and w may send files faster
			one.LockSystem = s
			one.ServeHTTP(w, r)
			return
		}
		asked := &request{LockSystem: s}
		one.LockSystem = asked
		one.ServeHTTP(&answer{ResponseWriter: w, to: r, asked: asked, prefix: h.Prefix}, r)
	})
}

// A request is the lock system of one request. It remembers why a lock was refused, which the
// handler cannot be told: it compares the error.
type request struct {
	*LockSystem
	conflict *pathlock.ConflictError
}

// Create is that of LockSystem.
func (q *request) Create(_ time.Time, details webdav.LockDetails) (string, error) {
	token, err := q.create(details)
	q.conflict, _ = errors.AsType[*pathlock.ConflictError](err)
	return token, locked(err)
}

// An answer replaces the body of a 423 by the names of the locks in the way.
type answer struct {
	http.ResponseWriter
	to       *http.Request
	asked    *request
	prefix   string
	answered bool // with a body of its own
}

// WriteHeader writes the whole answer if it is a 423.
func (a *answer) WriteHeader(status int) {
	if status != http.StatusLocked || a.asked.conflict == nil || a.asked.conflict.Len() == 0 {
		a.ResponseWriter.WriteHeader(status)
		return
	}
	a.answered = true
	a.Header().Set("Content-Type", `application/xml; charset="utf-8"`)
	a.ResponseWriter.WriteHeader(status)
	_, _ = a.ResponseWriter.Write([]byte(a.names(a.asked.conflict)))
}

// Write drops the handler's word if the answer has a body.
func (a *answer) Write(p []byte) (int, error) {
	if a.answered {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// names returns the body of the answer. If more locks are in the way than are listed, the element more
// says how many. Lock and TryHold list those that were added a moment before, too, and an exclusive
// request lets none that wait go first.
func (a *answer) names(c *pathlock.ConflictError) string {
	condition := "lock-token-submitted"
	if a.to.Method == "LOCK" {
		condition = "no-conflicting-lock"
	}
	var b strings.Builder
	b.WriteString(xml.Header + `<D:error xmlns:D="DAV:"><D:` + condition + `>`)
	last := ""
	for _, l := range slices.Concat(c.Parents, c.Same, c.Children) {
		if l.Path == last {
			continue
		}
		last = l.Path
		b.WriteString("<D:href>")
		_ = xml.EscapeText(&b, []byte((&url.URL{Path: a.prefix + l.Path}).EscapedPath())) // it never fails
		b.WriteString("</D:href>")
	}
	b.WriteString(`</D:` + condition + `>`)
	if c.More > 0 { // a client ignores elements that it does not know (RFC 4918, §17)
		fmt.Fprintf(&b, `<more xmlns="https://github.com/mongolock/mongolock">%d</more>`, c.More)
	}
	b.WriteString(`</D:error>`)
	return b.String()
}
