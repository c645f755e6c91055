package servers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A Member is one member of a set, one shard of a cluster, or the one server that there is. A
// call that its kind cannot carry out returns an error that matches errors.ErrUnsupported.
type Member struct {
	server *Server
	node   node
	index  int
}

// Members returns the members of a set, or the shards of a cluster. A server that is one process is its own
// only member; a server that is not one has no members.
func (s *Server) Members() (all []*Member) {
	several, ok := s.backend.(interface{ nodes() []node })
	if !ok {
		return nil
	}
	for i, n := range several.nodes() {
		all = append(all, &Member{server: s, node: n, index: i})
	}
	return all
}

// Host returns the host:port by which clients and the other members know it.
func (m *Member) Host() string { return m.node.host() }

// Kill ends it with SIGKILL and waits until it has ended.
func (m *Member) Kill() error { return m.locked("kill", m.node.kill) }

// Restart starts it on its data. One that runs is shut down in good order first. It returns when the member
// accepts connections, which is before it is primary or secondary.
func (m *Member) Restart(ctx context.Context) error {
	return m.locked("restart", func() error { return m.node.rerun(ctx) })
}

// Suspend stops it with SIGSTOP: it keeps its connections, and answers nothing until Continue.
func (m *Member) Suspend() error { return m.locked("suspend", m.node.suspend) }

// Continue has it go on after Suspend, without knowing that time has passed.
func (m *Member) Continue() error { return m.locked("continue", m.node.resume) }

// CutOff ends the connections between it and the other members, until Rejoin. With links clients reach it
// all the same; a container they do not reach either.
func (m *Member) CutOff() error { return m.cut("cut off", true) }

// Rejoin lets it reach the other members again.
func (m *Member) Rejoin() error { return m.cut("rejoin", false) }

func (m *Member) cut(what string, off bool) error {
	return m.locked(what, func() error {
		if s := setOf(m.server.backend); s != nil && s.cut != nil {
			return s.cut(m.index, off)
		}
		return fmt.Errorf("a member is cut off where its set was started with links: %w", errors.ErrUnsupported)
	})
}

func setOf(b backend) *set {
	if c, ok := b.(*containers); ok {
		b = c.backend
	}
	s, _ := b.(*set)
	return s
}

// SetClock sets how far its wall clock is ahead of the machine's. It knows that within a second, and keeps it
// over a restart. Its server was started with clocks.
func (m *Member) SetClock(off time.Duration) error {
	return m.locked("set the clock of", func() error { return m.node.setClock(off) })
}

// MakePrimary has it stand for election until it is primary. It does not win while it lacks writes that the
// others have, or cannot reach a majority; the context bounds that, and so do thirty seconds.
func (m *Member) MakePrimary(ctx context.Context) error {
	return m.locked("make primary", func() error { return standForElection(ctx, "mongodb://"+m.Host()+"/") })
}

func (m *Member) locked(what string, do func() error) error {
	return m.server.locked(fmt.Sprintf("%s member %d of", what, m.index), do)
}

func standForElection(ctx context.Context, uri string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetDirect(true).SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		return err
	}
	defer disconnect(client)
	admin := client.Database("admin")
	var refused error
	for {
		var is struct {
			Primary bool `bson:"ismaster"`
		}
		err := admin.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Decode(&is)
		if err == nil && is.Primary {
			return nil
		}
		if err == nil {
			err = admin.RunCommand(ctx, bson.D{{Key: "replSetStepUp", Value: 1}}).Err()
		}
		if e, ok := errors.AsType[mongo.CommandError](err); ok && e.HasErrorCode(commandNotFound) {
			return fmt.Errorf("this server does not know replSetStepUp: %w", errors.ErrUnsupported)
		}
		if err != nil && ctx.Err() == nil {
			refused = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("it was not elected: %w", context.Cause(ctx)), refused)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

const commandNotFound = 59
