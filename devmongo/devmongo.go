// Package devmongo finds or starts a MongoDB server to develop and test against.
//
// It takes the first that this machine has:
//
//  1. the server that MONGODB_URI names, which is never stopped, killed or stepped down;
//  2. a mongod on PATH, as a replica set of one node;
//  3. secantusd-rs on PATH, or in the user's cache folder under mongolock/secantus/bin;
//  4. mongo:8 in Docker, if a daemon answers;
//  5. FerretDB on SQLite, inside this process, behind a gate that passes one command at a time.
//
// The command devmongo serves programs in other modules: `devmongo exec -- go test ./...` passes the
// server to its child through the environment, with what the server can show, and breaks it when asked.
package devmongo

import (
	"context"

	"github.com/mongolock/mongolock/devmongo/internal/servers"
)

// A Server is one running server.
type Server struct{ started *servers.Server }

// Start finds or starts a server of a kind, such as "secantus", or of the first kind that this machine has
// if that is empty. It returns when the server accepts writes. The context bounds the start only.
func Start(ctx context.Context, kind string) (*Server, error) {
	started, err := servers.Start(ctx, servers.Config{Kind: servers.Kind(kind)})
	if err != nil {
		return nil, err
	}
	return &Server{started}, nil
}

// URI returns the connection string.
func (s *Server) URI() string { return s.started.URI() }

// Kind returns the kind of the server.
func (s *Server) Kind() string { return string(s.started.Kind()) }

// Stop ends the server and removes its data. One that MONGODB_URI names is left alone. Further calls have no
// effect.
func (s *Server) Stop() error { return s.started.Stop() }
