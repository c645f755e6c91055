package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/mongolock/mongolock/devmongo/internal/servers"
)

var errBadValue = errors.New("bad value")

// wantedBy returns the server that a test wants for itself: one like the shared one, but for what its
// request says.
func wantedBy(r *http.Request, like servers.Config) (wanted servers.Config, err error) {
	wanted = like
	wanted.Port = 0
	wanted.Auth, wanted.Links, wanted.Clocks = r.FormValue("auth") == "1", r.FormValue("links") == "1", r.FormValue("clocks") == "1"
	if wanted.Members, err = number(r, "members", like.Members); err == nil {
		wanted.Shards, err = number(r, "shards", 0)
	}
	if wanted.Shards > 0 {
		wanted.Members = 0
	}
	return wanted, err
}

// number returns a value that is a whole number, zero or above.
func number(r *http.Request, name string, usual int) (int, error) {
	text := r.FormValue(name)
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: %s=%q is no whole number", errBadValue, name, text)
	}
	return n, nil
}

func periodOf(r *http.Request) (time.Duration, error) {
	const usual = 2
	n, err := number(r, "seconds", usual)
	if err == nil && n < 1 {
		err = fmt.Errorf("%w: seconds=%d is not above zero", errBadValue, n)
	}
	return time.Duration(n) * time.Second, err
}

// memberVerbs are what a test can do with one member.
var memberVerbs = map[string]func(*servers.Member, *http.Request) error{
	"kill":     func(m *servers.Member, _ *http.Request) error { return m.Kill() },
	"restart":  func(m *servers.Member, r *http.Request) error { return m.Restart(r.Context()) },
	"suspend":  func(m *servers.Member, _ *http.Request) error { return m.Suspend() },
	"continue": func(m *servers.Member, _ *http.Request) error { return m.Continue() },
	"cutoff":   func(m *servers.Member, _ *http.Request) error { return m.CutOff() },
	"rejoin":   func(m *servers.Member, _ *http.Request) error { return m.Rejoin() },
	"primary":  func(m *servers.Member, r *http.Request) error { return m.MakePrimary(r.Context()) },
	"clock": func(m *servers.Member, r *http.Request) error {
		off, err := time.ParseDuration(r.FormValue("ahead"))
		if err != nil {
			return fmt.Errorf("%w: ahead=%q is no duration", errBadValue, r.FormValue("ahead"))
		}
		return m.SetClock(off)
	},
}

// toMember does what a request asks with one member of a server.
func (c *control) toMember(r *http.Request) error {
	server, err := c.server(r.PathValue("id"))
	if err != nil {
		return err
	}
	do := memberVerbs[r.PathValue("verb")]
	if do == nil {
		return fmt.Errorf("%w: a member cannot be told to %q", errBadValue, r.PathValue("verb"))
	}
	members := server.Members()
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil || n < 0 || n >= len(members) {
		return fmt.Errorf("%w: no member %q of %d", errBadValue, r.PathValue("n"), len(members))
	}
	return do(members[n], r)
}
