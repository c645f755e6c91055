package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/mongolock/mongolock/devmongo/internal/servers"
)

// control lets a test of another module kill, restart and step down servers, over HTTP on the loopback:
//
//	POST   /kill, /restart, /stepdown[?seconds=2]                the server that the tests share
//	POST   /servers[?auth=1]                                     starts another of its kind, for one test
//	POST   /servers?members=3[&links=1][&clocks=1], ?shards=2    or a set, or a sharded cluster
//	POST   /servers/{id}/kill, …/restart, …/stepdown[?seconds=2] that server
//	POST   /servers/{id}/members/{n}/{what}                      its n-th member, from 0, see memberVerbs
//	DELETE /servers/{id}                                         ends that server and removes its data
//
// Success is 200 with a JSON object (of a new server: id, uri, kind, version, has, members), or 204 without
// one. A failure is text, with status 400 for a bad value, 404 for an unknown server, 501 for what the kind cannot do,
// and 500 for the rest.
type control struct {
	shared *servers.Server
	like   servers.Config // of every server that a test starts for itself
	log    *slog.Logger
	http   http.Server
	cancel context.CancelFunc // of its requests, and so of the starts under way
	url    string

	mu      sync.Mutex // protects all that follows; not held while a server starts
	servers map[string]*servers.Server
	lastID  int
}

// startControl listens on a port of the loopback. The path begins with a secret, so that a web page
// or another user who guesses the port cannot kill anything.
func startControl(shared *servers.Server, like servers.Config) (*control, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	secret := "/" + rand.Text()
	ctx, cancel := context.WithCancel(context.Background())
	c := &control{
		shared:  shared,
		like:    like,
		log:     cmp.Or(like.Log, slog.New(slog.DiscardHandler)),
		cancel:  cancel,
		url:     "http://" + l.Addr().String() + secret,
		servers: map[string]*servers.Server{},
	}
	c.http.Handler = http.StripPrefix(secret, c.routes())
	c.http.BaseContext = func(net.Listener) context.Context { return ctx }
	go c.http.Serve(l) // ends with close
	return c, nil
}

func (c *control) routes() http.Handler {
	mux := http.NewServeMux()
	for verb, do := range map[string]func(*servers.Server, *http.Request) error{
		"kill":    func(s *servers.Server, _ *http.Request) error { return s.Kill() },
		"restart": func(s *servers.Server, r *http.Request) error { return s.Restart(r.Context()) },
		"stepdown": func(s *servers.Server, r *http.Request) error {
			period, err := periodOf(r)
			if err != nil {
				return err
			}
			return s.StepDown(r.Context(), period)
		},
	} {
		handler := func(w http.ResponseWriter, r *http.Request) {
			server, err := c.server(r.PathValue("id"))
			if err == nil {
				err = do(server, r)
			}
			answer(w, nil, err)
		}
		mux.HandleFunc("POST /"+verb, handler)
		mux.HandleFunc("POST /servers/{id}/"+verb, handler)
	}
	mux.HandleFunc("POST /servers", func(w http.ResponseWriter, r *http.Request) {
		wanted, err := wantedBy(r, c.like)
		var body *started
		if err == nil {
			body, err = c.start(r.Context(), wanted)
		}
		answer(w, body, err)
	})
	mux.HandleFunc("POST /servers/{id}/members/{n}/{verb}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, nil, c.toMember(r))
	})
	mux.HandleFunc("DELETE /servers/{id}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, nil, c.end(r.PathValue("id")))
	})
	return mux
}

// started is the answer to POST /servers.
type started struct {
	ID      string               `json:"id"`
	URI     string               `json:"uri"`
	Kind    servers.Kind         `json:"kind"`
	Version string               `json:"version"`
	Has     []servers.Capability `json:"has"`
	Members []string             `json:"members"` // host:port of each
}

func (c *control) start(ctx context.Context, wanted servers.Config) (*started, error) {
	if c.shared.Kind() == servers.External {
		return nil, fmt.Errorf("another external server: %w", errors.ErrUnsupported)
	}
	if wanted.Auth && !c.shared.Has(servers.Roles) {
		return nil, fmt.Errorf("%s with users: %w", c.shared.Kind(), errors.ErrUnsupported)
	}
	wanted.Kind = c.shared.Kind()
	server, err := servers.Start(ctx, wanted)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.lastID++
	id := strconv.Itoa(c.lastID)
	c.servers[id] = server
	c.mu.Unlock()
	body := &started{ID: id, URI: server.URI(), Kind: server.Kind(), Version: server.Version(), Has: server.Capabilities()}
	for _, m := range server.Members() {
		body.Members = append(body.Members, m.Host())
	}
	return body, nil
}

func (c *control) end(id string) error {
	server, err := c.server(id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.servers, id)
	c.mu.Unlock()
	return server.Stop()
}

func (c *control) server(id string) (*servers.Server, error) {
	if id == "" {
		return c.shared, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if server := c.servers[id]; server != nil {
		return server, nil
	}
	return nil, fmt.Errorf("server %q: %w", id, errUnknownServer)
}

var errUnknownServer = errors.New("no such server")

// close ends the endpoint and every server that was started through it, but not the shared one.
func (c *control) close() error {
	c.cancel()
	err := c.http.Shutdown(context.Background()) // waits for a start to clean up
	c.mu.Lock()
	defer c.mu.Unlock()
	var ending sync.WaitGroup
	for _, server := range c.servers {
		ending.Go(func() {
			if err := server.Stop(); err != nil {
				c.log.Warn("devmongo: a test's server failed to stop", "error", err)
			}
		})
	}
	ending.Wait()
	return err
}

func answer(w http.ResponseWriter, body *started, err error) {
	switch {
	case errors.Is(err, errUnknownServer):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, errBadValue):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, errors.ErrUnsupported):
		http.Error(w, err.Error(), http.StatusNotImplemented)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case body == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(body)
	}
}
