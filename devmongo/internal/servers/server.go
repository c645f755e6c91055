package servers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Kind is one way to get a server.
type Kind string

// The kinds, in the order in which Start prefers them.
const (
	External Kind = "external" // the server that MONGODB_URI names
	Mongod   Kind = "mongod"   // a mongod on PATH
	Secantus Kind = "secantus" // SecantusDB's Rust server, secantusd-rs
	Docker   Kind = "docker"   // mongo:8 through testcontainers
	FerretDB Kind = "ferretdb" // FerretDB v1 on SQLite in this process, behind a gate
)

// A Server is one running server. It is safe for concurrent use.
type Server struct {
	kind    Kind
	uri     string
	version string
	has     []Capability
	shape   Config // how many members and shards

	mu      sync.Mutex // one of Kill, Restart, StepDown, Stop at a time
	backend backend
	stopped bool
}

// A backend implements a kind of server. Its calls are made one at a time.
type backend interface {
	// start starts the server, waits until it accepts writes, and returns its address. It is called
	// once. A start that fails has cleaned up after itself.
	start(ctx context.Context) (uri string, err error)
	// kill ends the server without a chance to write anything.
	kill() error
	// restart starts it again with its data and address. A running server is shut down first.
	restart(ctx context.Context) error
	// stop ends it, whatever its state, and removes temporary data.
	stop() error
}

// A Config says which server is wanted. The zero Config is the first that this machine has.
type Config struct {
	Kind Kind         // this one, and no other
	Port int          // on the loopback interface; zero is any free one
	Log  *slog.Logger // of the server's output (Debug), and of kinds that failed to start (Warn); nil: none

	// Auth starts a server with access control; its URI contains a user with the role root.
	Auth bool
	// Members starts a replica set of so many, with an election timeout of two seconds. [Server.Members]
	// are its members, which can be broken one by one. Zero is one member; if one is asked for, a container
	// can be killed and restarted, too.
	Members int
	// Shards starts a sharded cluster: so many shards of one member, a config server and a router, whose
	// address is the URI.
	Shards int
	// Links lets each member of a set be cut off from the others while clients reach them all. Between
	// processes that takes a proxy in front of each member; containers need none.
	Links bool
	// Clocks lets the wall clock of each member be set apart from the machine's, by libfaketime.
	Clocks bool
	// Image is that of Docker; the default is mongo:8.
	Image string
}

// Start finds or starts a server and returns when it accepts writes. The context bounds the start only.
// If a kind that the machine has fails to start, Start logs a warning and tries the next one. A kind that
// is named and the server of MONGODB_URI are not replaced: if they fail, Start fails.
func Start(ctx context.Context, s Config) (*Server, error) {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	offers, err := offersFor(s)
	if err != nil {
		return nil, err
	}
	return startFirst(ctx, offers, s)
}

func startFirst(ctx context.Context, offers []offer, s Config) (*Server, error) {
	var failed []error
	for _, o := range offers {
		b, err := o.find(ctx, s)
		found := err == nil
		if found {
			var server *Server
			if server, err = startWith(ctx, o.kind, b, s); err == nil {
				return server, nil
			}
		}
		failed = append(failed, fmt.Errorf("%s: %w", o.kind, err))
		if ctx.Err() != nil || found && o.kind == External {
			break
		}
		if found && len(offers) > 1 {
			s.Log.Warn("devmongo: a server failed to start; trying the next kind", "kind", o.kind, "error", err)
		}
	}
	return nil, fmt.Errorf("devmongo: no server: %w", errors.Join(failed...))
}

func startWith(ctx context.Context, kind Kind, b backend, s Config) (*Server, error) {
	uri, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	has, version, err := capabilities(ctx, kind, uri, s)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("probing the server's capabilities: %w", err), b.stop())
	}
	return &Server{kind: kind, uri: uri, version: version, has: has, shape: s, backend: b}, nil
}

// URI returns the connection string. It stays the same across Kill and Restart.
func (s *Server) URI() string { return s.uri }

// Kind returns the kind of the server.
func (s *Server) Kind() Kind { return s.kind }

// Version returns the version that the server reports.
func (s *Server) Version() string { return s.version }

// Capabilities returns what the server can show, sorted.
func (s *Server) Capabilities() []Capability { return slices.Clone(s.has) }

// Has reports whether the server can show c.
func (s *Server) Has(c Capability) bool { return slices.Contains(s.has, c) }

// Limits describes what the server cannot show, as the end of a sentence: "cannot show …".
func (s *Server) Limits() string { return limits(s.kind, s.has, s.shape) }

// Kill ends the server's process with SIGKILL and waits until it has ended; of a set, those of all members.
// Without the capability Process its error matches errors.ErrUnsupported.
func (s *Server) Kill() error {
	return s.locked("kill", s.backend.kill)
}

// Restart starts the server again with its data, on the same port, so that clients find it again. A
// running server is shut down in good order first. For External and Docker the error matches
// errors.ErrUnsupported.
func (s *Server) Restart(ctx context.Context) error {
	return s.locked("restart", func() error { return s.backend.restart(ctx) })
}

// StepDown makes the server refuse writes with NotWritablePrimary for the period, rounded up to whole
// seconds. It returns at once. A node that is alone becomes primary again when the period is over; a set
// elects another one before.
// Without the capability StepDown the error matches errors.ErrUnsupported.
func (s *Server) StepDown(ctx context.Context, period time.Duration) error {
	return s.locked("step down", func() error {
		if !s.Has(StepDown) {
			return errors.ErrUnsupported
		}
		seconds := int((period + time.Second - 1) / time.Second)
		// Without force a node without a possible successor refuses. The catch-up period must be shorter
		// than the period itself.
		return onPrimary(ctx, s.uri, bson.D{
			{Key: "replSetStepDown", Value: max(seconds, 1)},
			{Key: "secondaryCatchUpPeriodSecs", Value: 0},
			{Key: "force", Value: true},
		})
	})
}

// Stop ends the server and removes its temporary data. An external server is left alone. Further calls
// have no effect.
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
