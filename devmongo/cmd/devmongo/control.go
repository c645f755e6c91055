package main

import (
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
	"time"

	"github.com/mongolock/mongolock/devmongo"
)

// control lets a test of another module kill, restart and step down servers, over HTTP on the loopback:
//
//	POST   /kill, /restart, /stepdown[?seconds=2]                the server that the tests share
//	POST   /servers[?auth=1]                                     starts another of its kind, for one test
//	POST   /servers/{id}/kill, …/restart, …/stepdown[?seconds=2] that server
//	DELETE /servers/{id}                                         ends that server and removes its data
//
// Success is 200 with a JSON object (of a new server: id, uri, kind, has), or 204 without one. A failure
// is text, with status 400 for a bad period, 404 for an unknown server, 501 for what the kind cannot do,
// and 500 for the rest.
type control struct {
	shared *devmongo.Server
	log    *slog.Logger
	http   http.Server
	url    string

	mu      sync.Mutex // protects all that follows; not held while a server starts or ends
	servers map[string]*devmongo.Server
	lastID  int
	closed  bool
}

// startControl listens on a port of the loopback. The path begins with a secret, so that a web page
// or another user who guesses the port cannot kill anything.
func startControl(shared *devmongo.Server, log *slog.Logger) (*control, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	secret := "/" + rand.Text()
	c := &control{
		shared:  shared,
		log:     log,
		url:     "http://" + l.Addr().String() + secret,
		servers: map[string]*devmongo.Server{},
	}
	c.http.Handler = http.StripPrefix(secret, c.routes())
	go c.http.Serve(l) // ends with close
	return c, nil
}

func (c *control) routes() http.Handler {
	mux := http.NewServeMux()
	for verb, do := range map[string]func(*devmongo.Server, *http.Request) error{
		"kill":    func(s *devmongo.Server, _ *http.Request) error { return s.Kill() },
		"restart": func(s *devmongo.Server, r *http.Request) error { return s.Restart(r.Context()) },
		"stepdown": func(s *devmongo.Server, r *http.Request) error {
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
		started, err := c.start(r.Context(), r.FormValue("auth") == "1")
		answer(w, started, err)
	})
	mux.HandleFunc("DELETE /servers/{id}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, nil, c.end(r.PathValue("id")))
	})
	return mux
}

// started is the answer to POST /servers.
type started struct {
	ID   string                `json:"id"`
	URI  string                `json:"uri"`
	Kind devmongo.Kind         `json:"kind"`
	Has  []devmongo.Capability `json:"has"`
}

func (c *control) start(ctx context.Context, auth bool) (*started, error) {
	if c.shared.Kind() == devmongo.External {
		return nil, fmt.Errorf("another external server: %w", errors.ErrUnsupported)
	}
	opts := []devmongo.Option{devmongo.WithKind(c.shared.Kind()), devmongo.WithLogger(c.log)}
	if auth {
		if !c.shared.Has(devmongo.Roles) {
			return nil, fmt.Errorf("%s with users: %w", c.shared.Kind(), errors.ErrUnsupported)
		}
		opts = append(opts, devmongo.WithAuth())
	}
	server, err := devmongo.Start(ctx, opts...)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	closed := c.closed
	c.lastID++
	id := strconv.Itoa(c.lastID)
	if !closed {
		c.servers[id] = server
	}
	c.mu.Unlock()
	if closed {
		return nil, errors.Join(errors.New("devmongo is ending"), server.Stop())
	}
	return &started{id, server.URI(), server.Kind(), server.Capabilities()}, nil
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

func (c *control) server(id string) (*devmongo.Server, error) {
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
	err := c.http.Close() // which cancels the contexts of its requests, and so the starts under way
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
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

func periodOf(r *http.Request) (time.Duration, error) {
	const usual = 2 * time.Second
	if r.FormValue("seconds") == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(r.FormValue("seconds"))
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: %q", errBadPeriod, r.FormValue("seconds"))
	}
	return time.Duration(n) * time.Second, nil
}

var errBadPeriod = errors.New("seconds: must be a whole number above zero")

func answer(w http.ResponseWriter, body *started, err error) {
	switch {
	case errors.Is(err, errUnknownServer):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, errBadPeriod):
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
