package devmongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Kind is one way to have a server.
type Kind string

// The kinds, in the order in which Start prefers them.
const (
	External Kind = "external" // the one that MONGODB_URI names
	Mongod   Kind = "mongod"   // a mongod on PATH
	Secantus Kind = "secantus" // SecantusDB's Rust server, secantusd-rs
	Docker   Kind = "docker"   // mongo:8 through testcontainers
	FerretDB Kind = "ferretdb" // FerretDB v1 on SQLite in this process, behind a gate
)

// Server is one running server. Its methods may be called from several goroutines.
type Server struct {
	kind Kind
	uri  string
	has  []Capability

	mu      sync.Mutex // one of Kill, Restart, StepDown, Stop at a time
	backend backend
	stopped bool
}

// backend is what a kind of server has to offer. Calls come one at a time.
type backend interface {
	// start brings the server up, ready for writes, and says where it is. It is called once; when
	// it fails it has cleaned up after itself.
	start(ctx context.Context) (uri string, err error)
	// kill ends the server without a chance to write anything down.
	kill() error
	// restart brings it up again on its data and address; if it still runs it is first shut down.
	restart(ctx context.Context) error
	// stop ends it, whatever its state, and removes the data it made room for.
	stop() error
}

// settings are what the options set.
type settings struct {
	kind Kind
	dir  string
	port int
	auth bool
	log  *slog.Logger
}

// Option changes what Start does.
type Option func(*settings)

// WithKind forces one kind instead of the first that can be had. An empty kind forces nothing.
func WithKind(kind Kind) Option { return func(s *settings) { s.kind = kind } }

// WithDir keeps the data in dir, which then outlives the server. The default is a temporary
// directory, removed by Stop. It says nothing to an external server or to Docker.
func WithDir(dir string) Option { return func(s *settings) { s.dir = dir } }

// WithPort listens on this port of the loopback; zero is any that is free. It says nothing to an
// external server or to Docker.
func WithPort(port int) Option { return func(s *settings) { s.port = port } }

// WithAuth starts a server that asks who its clients are; the URI carries a user with the role root.
// A server that cannot is then no choice: External and FerretDB.
func WithAuth() Option { return func(s *settings) { s.auth = true } }

// WithLogger says where the server's own output (Debug) and a kind that was passed over because it
// failed to start (Warn) are logged. The default is nowhere.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// Start finds or starts a server and returns when it takes writes. The context bounds the start
// only. A kind that is there but fails is passed over for the next with a warning, except for the
// one forced by WithKind and the one that MONGODB_URI names: somebody asked for these.
func Start(ctx context.Context, opts ...Option) (*Server, error) {
	s := settings{log: slog.New(slog.DiscardHandler)}
	for _, opt := range opts {
		opt(&s)
	}
	offers, err := offersFor(s)
	if err != nil {
		return nil, err
	}
	return startFirst(ctx, offers, s)
}

func startFirst(ctx context.Context, offers []offer, s settings) (*Server, error) {
	var failed []error
	for _, o := range offers {
		b, err := o.find(ctx, s)
		found := err == nil
		if found {
			var server *Server
			if server, err = startWith(ctx, o.kind, b); err == nil {
				return server, nil
			}
		}
		failed = append(failed, fmt.Errorf("%s: %w", o.kind, err))
		if ctx.Err() != nil || found && o.kind == External {
			break
		}
		if found && len(offers) > 1 {
			s.log.Warn("devmongo: passed over a server that failed to start", "kind", o.kind, "error", err)
		}
	}
	return nil, fmt.Errorf("devmongo: no server: %w", errors.Join(failed...))
}

func startWith(ctx context.Context, kind Kind, b backend) (*Server, error) {
	uri, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	has, err := capabilities(ctx, kind, uri)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("asking the server what it can do: %w", err), b.stop())
	}
	return &Server{kind: kind, uri: uri, has: has, backend: b}, nil
}

// URI is the connection string. It stays the same across Kill and Restart.
func (s *Server) URI() string { return s.uri }

// Kind says which kind of server this is.
func (s *Server) Kind() Kind { return s.kind }

// Capabilities is what this server can show, sorted.
func (s *Server) Capabilities() []Capability { return slices.Clone(s.has) }

// Has reports whether the server can show c.
func (s *Server) Has(c Capability) bool { return slices.Contains(s.has, c) }

// Limits says what this server cannot show, as the end of a sentence: "cannot show …".
func (s *Server) Limits() string { return limits(s.kind, s.has) }

// Kill ends the server's process with SIGKILL and waits until it is gone. Only an owned process can
// be killed (capability Process); for any other it is errors.ErrUnsupported.
func (s *Server) Kill() error {
	return s.locked("kill", s.backend.kill)
}

// Restart brings the server up again on its data and on the same port, so that clients find it
// again. One that still runs is shut down in good order first. It is errors.ErrUnsupported for
// External and Docker.
func (s *Server) Restart(ctx context.Context) error {
	return s.locked("restart", func() error { return s.backend.restart(ctx) })
}

// StepDown makes the server refuse writes with NotWritablePrimary for the period, rounded up to
// whole seconds. It returns at once; the node, being alone, takes office again by itself when the
// period is over. It is errors.ErrUnsupported without the capability StepDown.
func (s *Server) StepDown(ctx context.Context, period time.Duration) error {
	return s.locked("step down", func() error {
		if !s.Has(StepDown) {
			return errors.ErrUnsupported
		}
		seconds := int((period + time.Second - 1) / time.Second)
		// Without force a node that nobody can succeed refuses; the catch-up period must be
		// shorter than the period itself.
		return command(ctx, s.uri, bson.D{
			{Key: "replSetStepDown", Value: max(seconds, 1)},
			{Key: "secondaryCatchUpPeriodSecs", Value: 0},
			{Key: "force", Value: true},
		})
	})
}

// Stop ends the server and removes its temporary data. An external server is left alone. Calls
// after the first do nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	return s.backend.stop()
}

func (s *Server) locked(what string, do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errStopped
	if !s.stopped {
		err = do()
	}
	if err != nil {
		return fmt.Errorf("devmongo: %s %s: %w", what, s.kind, err)
	}
	return nil
}

var errStopped = errors.New("the server was stopped")

// dataDir is the given directory, or a new temporary one together with what removes it.
func dataDir(given string) (dir string, remove func() error, err error) {
	if given != "" {
		return given, func() error { return nil }, os.MkdirAll(given, 0o700)
	}
	dir, err = os.MkdirTemp("", "devmongo-")
	return dir, func() error { return os.RemoveAll(dir) }, err
}
