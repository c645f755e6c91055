package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mongolock/mongolock/pathlock"
)

// serve serves one client on standard input and output, until it goes or ctx ends.
func (s *settings) serve(ctx context.Context, tree *pathlock.Tree) error {
	agent := newAgent(ctx, tree, s.ttl)
	defer agent.leave()
	server := mcp.NewServer(&mcp.Implementation{Name: "mongolock", Version: version()}, &mcp.ServerOptions{
		Instructions: "Lock a path before you change what is at it or below it, and release it when you are done. If it is held, work elsewhere or wait. Renew it if the work takes longer than you asked for. If renew says that a lock is lost, stop changing the path: another client may have it.",
		Logger:       s.logger(),
	})
	s.tools(server, agent)
	if err := server.Run(ctx, &mcp.StdioTransport{}); err != nil && ctx.Err() == nil {
		return fmt.Errorf("the client's connection broke: %w", err)
	}
	return nil
}

// A wish holds the arguments of the tools lock and try.
type wish struct {
	Path   string  `json:"path" jsonschema:"the path, such as src/api; everything below it is locked too"`
	TTL    float64 `json:"ttl_seconds,omitempty" jsonschema:"for how long, unless it is renewed; 600 by default"`
	Shared bool    `json:"shared,omitempty" jsonschema:"share it with others that ask for it shared, to read"`
	Only   bool    `json:"only,omitempty" jsonschema:"lock the path itself, and not what is below it"`
	Note   string  `json:"note,omitempty" jsonschema:"what it is for, shown to others"`
}

// A patientWish holds the arguments of lock.
type patientWish struct {
	wish
	Wait float64 `json:"wait_seconds,omitempty" jsonschema:"how long to wait for a path that is held; 30 by default, 600 at most"`
}

type byToken struct {
	Token string `json:"token" jsonschema:"the token that lock or try returned"`
}

type renewal struct {
	byToken
	TTL float64 `json:"ttl_seconds,omitempty" jsonschema:"for how long from now; as before by default"`
}

type listing struct {
	Path string `json:"path,omitempty" jsonschema:"only locks on it, above it that reach it, and below it"`
}

// A granted is a lock, as its holder sees it.
type granted struct {
	Token string         `json:"token" jsonschema:"for renew and release"`
	Path  string         `json:"path"`
	Mode  pathlock.Mode  `json:"mode"`
	Depth pathlock.Depth `json:"depth"`
	TTL   float64        `json:"ttl_seconds" jsonschema:"it is given back then, unless it is renewed"`
}

type released struct {
	Path string `json:"path"`
}

// request returns the request to make of a tree.
func request(w wish, ttl time.Duration, owner []byte) pathlock.Request {
	r := pathlock.Request{Path: w.Path, Mode: pathlock.Exclusive, Depth: pathlock.Infinity, Timeouts: []time.Duration{ttl}, Owner: owner}
	if w.Shared {
		r.Mode = pathlock.Shared
	}
	if w.Only {
		r.Depth = pathlock.Zero
	}
	return r
}

type listed struct {
	Locks []lockSeen `json:"locks"`
}

// A lockSeen is a lock as others see it, without the token that only its holder has.
type lockSeen struct {
	Path     string         `json:"path"`
	Mode     pathlock.Mode  `json:"mode"`
	Depth    pathlock.Depth `json:"depth"`
	Owner    string         `json:"owner,omitempty"`
	Since    time.Time      `json:"since"`
	ExpireAt time.Time      `json:"expireAt,omitzero"` // none for a lock without end
	Left     float64        `json:"leftSeconds,omitempty"`
	Mine     bool           `json:"mine" jsonschema:"this client has it"`
}

func seen(l pathlock.Lock, mine bool) lockSeen {
	v := lockSeen{Path: l.Path, Mode: l.Mode, Depth: l.Depth, Owner: string(l.Owner), Since: l.Since.UTC(), Mine: mine}
	if l.Left != pathlock.Infinite {
		v.Left, v.ExpireAt = l.Left.Seconds(), l.ExpireAt.UTC()
	}
	return v
}

const (
	standardTTL  = 10 * time.Minute
	standardWait = 30 * time.Second
	longestWait  = 10 * time.Minute
)

// seconds reads a number of seconds. Zero stands for the standard value.
func seconds(name string, n float64, standard, most time.Duration) (time.Duration, error) {
	d := time.Duration(n * float64(time.Second))
	switch {
	case n == 0:
		return min(standard, most), nil
	case n < 1 || n > most.Seconds():
		return 0, fmt.Errorf("%s is %v: must be from 1 to %v", name, n, most.Seconds())
	}
	return d, nil
}

// tools gives the server its tools. An error is a tool's answer, which the client reads.
func (s *settings) tools(server *mcp.Server, agent *agent) {
	take := func(ctx context.Context, req *mcp.CallToolRequest, w wish, patience time.Duration) (granted, error) {
		ttl, err := seconds("ttl_seconds", w.TTL, standardTTL, s.longest)
		if len(w.Note) > 1024 {
			err = errors.Join(err, fmt.Errorf("note has %d bytes: at most 1024", len(w.Note)))
		}
		if w.Path == "" {
			err = errors.Join(err, errors.New(`path is empty: "/" is the whole tree`))
		}
		if err != nil {
			return granted{}, err
		}
		return agent.take(ctx, request(w, s.ttl, s.who(asks(req, w.Note))), ttl, patience)
	}
	mcp.AddTool(server, &mcp.Tool{Name: "lock", Description: "Lock a path and everything below it. Waits while others hold it."},
		func(ctx context.Context, req *mcp.CallToolRequest, w patientWish) (*mcp.CallToolResult, granted, error) {
			patience, err := seconds("wait_seconds", w.Wait, standardWait, longestWait)
			if err != nil {
				return nil, granted{}, err
			}
			g, err := take(ctx, req, w.wish, patience)
			return nil, g, err
		})
	mcp.AddTool(server, &mcp.Tool{Name: "try", Description: "Lock a path and everything below it, or say at once who holds it."},
		func(ctx context.Context, req *mcp.CallToolRequest, w wish) (*mcp.CallToolResult, granted, error) {
			g, err := take(ctx, req, w, 0)
			return nil, g, err
		})
	mcp.AddTool(server, &mcp.Tool{Name: "renew", Description: "Keep a lock for longer. An error says whether the lock is lost (then stop changing the path) or to ask again."},
		func(ctx context.Context, _ *mcp.CallToolRequest, r renewal) (*mcp.CallToolResult, granted, error) {
			ttl, err := seconds("ttl_seconds", r.TTL, 0, s.longest)
			if err != nil {
				return nil, granted{}, err
			}
			g, err := agent.renew(ctx, r.Token, ttl)
			return nil, g, err
		})
	mcp.AddTool(server, &mcp.Tool{Name: "release", Description: "Give a lock back."},
		func(_ context.Context, _ *mcp.CallToolRequest, t byToken) (*mcp.CallToolResult, released, error) {
			path, err := agent.release(t.Token)
			return nil, released{path}, err
		})
	mcp.AddTool(server, &mcp.Tool{Name: "list", Description: "List who holds which paths.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(ctx context.Context, _ *mcp.CallToolRequest, l listing) (*mcp.CallToolResult, listed, error) {
			all, err := agent.list(ctx, l.Path)
			return nil, listed{all}, err
		})
}

// asks returns what others see beside a path: the client's name, and its note.
func asks(req *mcp.CallToolRequest, note string) string {
	var parts []string
	if req != nil && req.Session != nil {
		if p := req.Session.InitializeParams(); p != nil && p.ClientInfo != nil && p.ClientInfo.Name != "" {
			parts = append(parts, clipped(p.ClientInfo.Name))
		}
	}
	if note != "" {
		parts = append(parts, note)
	}
	return strings.Join(parts, ": ")
}

func clipped(name string) string {
	all := []rune(name)
	return string(all[:min(len(all), 100)])
}
