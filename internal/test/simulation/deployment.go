package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/mnet"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"
)

// A deployment is what one client's driver uses as its servers. It replaces the driver's
// topology: it finds the primary, and forgets it after an error.
type deployment struct {
	client *process
	known  *member // protected by world.mu, as what follows
	term   int     // the latest election that it has seen
	looked time.Duration
	looks  int           // in how many instants it was asked for a server
	asked  time.Duration // the last of them
}

const (
	selectionTimeout = 5 * time.Second  // how long the driver looks for a primary
	heartbeat        = 10 * time.Second // how often it looks without an error
)

// connect makes a driver's client whose messages do not leave this process.
func connect(p *process, retries bool) (*mongo.Client, error) {
	opts := options.Client().SetRetryWrites(retries)
	if err := xoptions.SetInternalClientOptions(opts, "deployment", &deployment{client: p}); err != nil {
		return nil, err
	}
	return mongo.Connect(opts)
}

// SelectServer waits until there is a primary.
func (d *deployment) SelectServer(ctx context.Context, _ description.ServerSelector) (driver.Server, error) {
	w := d.client.world
	began := w.since()
	for {
		w.mu.Lock()
		if (d.known == nil || w.since()-d.looked > heartbeat) && !d.client.dead {
			d.known, d.looked = w.serverFor(d.client.id, d.term), w.since()
		}
		m := d.known
		if m != nil {
			d.term = max(d.term, m.term)
		}
		if now := w.since(); d.asked != now { // goroutines of one instant ask in any order, and draw alike
			d.asked = now
			d.looks++
		}
		wait := lookAgain(w.rng(fmt.Sprintf("look %d %d", d.client.id, d.looks)))
		w.mu.Unlock()
		if m != nil {
			return &server{d, m, began}, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, topology.ServerSelectionError{Wrapped: ctx.Err()}
		}
	}
}

// serverFor returns the server that a client finds: its router, or a primary. With w.mu held.
func (w *world) serverFor(client, seen int) *member {
	switch {
	case w.plan.servers != routers:
		return w.cluster.primaryFor(client, seen)
	case w.isCutOff(client):
		return nil
	}
	if w.routers[client] == nil {
		w.routers[client] = w.newRouter(client)
	}
	return w.routers[client]
}

// Kind returns what the servers are together.
func (d *deployment) Kind() description.TopologyKind {
	switch d.client.world.plan.servers {
	case standalone:
		return description.TopologyKindSingle
	case routers:
		return description.TopologyKindSharded
	}
	return description.TopologyKindReplicaSetWithPrimary
}

// GetServerSelectionTimeout bounds SelectServer.
func (d *deployment) GetServerSelectionTimeout() time.Duration { return selectionTimeout }

// A server is a member as the driver sees it.
type server struct {
	d     *deployment
	m     *member
	began time.Duration // when the driver began to look for it
}

func (s *server) Connection(context.Context) (*mnet.Connection, error) {
	w := s.d.client.world
	w.mu.Lock()
	defer w.mu.Unlock()
	return mnet.NewConnection(&conn{client: s.d.client, member: s.m, epoch: s.m.epoch, began: s.began}), nil
}

func (s *server) RTTMonitor() driver.RTTMonitor { return noRTT{} }

// ProcessError forgets a primary that is not one any more, or cannot be reached.
func (s *server) ProcessError(err error, _ mnet.Describer) driver.ProcessErrorResult {
	var e driver.Error
	if err == nil || !errors.As(err, &e) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return driver.NoChange
	}
	if !e.HasErrorLabel(driver.NetworkError) && !e.NotPrimary() && !e.NodeIsRecovering() {
		return driver.NoChange
	}
	w := s.d.client.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.d.known == s.m {
		s.d.known = nil
	}
	return driver.ServerMarkedUnknown
}

type noRTT struct{}

func (noRTT) EWMA() time.Duration { return 0 }
func (noRTT) Min() time.Duration  { return 0 }
func (noRTT) Stats() string       { return "" }

func (m *member) address() address.Address {
	return address.Address(fmt.Sprintf("server-%d:27017", m.id))
}

func (m *member) description() description.Server {
	minutes := int64(30)
	kind := description.ServerKindRSPrimary
	switch m.w.plan.servers {
	case standalone:
		kind = description.ServerKindStandalone
	case routers:
		kind = description.ServerKindMongos
	}
	return description.Server{
		Addr: m.address(), CanonicalAddr: m.address(),
		MaxDocumentSize: 16 << 20, MaxMessageSize: 48_000_000, MaxBatchCount: 100_000,
		SessionTimeoutMinutes: &minutes,
		Kind:                  kind,
		WireVersion:           &description.VersionRange{Min: 0, Max: 21},
	}
}
