package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// The environment of a child that runs the etcd server.
const (
	etcdDir     = "MONGOLOCK_COMPARE_ETCD_DIR"
	etcdAddress = "MONGOLOCK_COMPARE_ETCD_ADDRESS"
	etcdPeers   = "MONGOLOCK_COMPARE_ETCD_PEERS"
)

// serveEtcd runs one member with its default settings, in a process of its own.
func serveEtcd() error {
	config := embed.NewConfig()
	config.Dir = os.Getenv(etcdDir)
	config.LogLevel = "error"
	client := []url.URL{{Scheme: "http", Host: os.Getenv(etcdAddress)}}
	peer := []url.URL{{Scheme: "http", Host: os.Getenv(etcdPeers)}}
	config.ListenClientUrls, config.AdvertiseClientUrls = client, client
	config.ListenPeerUrls, config.AdvertisePeerUrls = peer, peer
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	if _, err := embed.StartEtcd(config); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt)
	<-ended
	return nil
}

func startEtcd(ctx context.Context) (place, func() error, error) {
	address, err := freeAddress()
	if err != nil {
		return place{}, nil, err
	}
	peers, err := freeAddress()
	if err != nil {
		return place{}, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return place{}, nil, err
	}
	dir, err := os.MkdirTemp("", "compare-etcd-")
	if err != nil {
		return place{}, nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), etcdDir+"="+dir, etcdAddress+"="+address, etcdPeers+"="+peers)
	cmd.Stderr = os.Stderr
	d, err := startDaemon(ctx, address, dir, cmd)
	return place{Address: address}, d.stop, err
}

// byEtcd has a session for each lock at a time: two locks of one session do not exclude
// each other.
type byEtcd struct {
	client *clientv3.Client
	ttl    time.Duration

	mu   sync.Mutex // protects idle
	idle []*concurrency.Session
	all  []*concurrency.Session
}

func openEtcd(_ context.Context, at place, s setting, asked *requests) (locks, error) {
	dial := []grpc.DialOption{grpc.WithStatsHandler(asked)}
	if s.over != nil {
		dial = append(dial, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return s.over.DialContext(ctx, "tcp", address)
		}))
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{at.Address}, DialOptions: dial})
	if err != nil {
		return nil, err
	}
	return &byEtcd{client: client, ttl: s.ttlOr(usualTTL)}, nil
}

func (e *byEtcd) session() (*concurrency.Session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.idle); n > 0 {
		s := e.idle[n-1]
		e.idle = e.idle[:n-1]
		return s, nil
	}
	s, err := concurrency.NewSession(e.client, concurrency.WithTTL(int(e.ttl/time.Second)))
	if err == nil {
		e.all = append(e.all, s)
	}
	return s, err
}

func (e *byEtcd) acquire(ctx context.Context, key string) (func() error, error) {
	session, err := e.session()
	if err != nil {
		return nil, err
	}
	mutex := concurrency.NewMutex(session, "/"+key+"/")
	if err := mutex.Lock(ctx); err != nil {
		return nil, err
	}
	return func() error {
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.idle = append(e.idle, session)
		}()
		return mutex.Unlock(context.WithoutCancel(ctx))
	}, nil
}

func (e *byEtcd) close() error {
	var errs []error
	for _, s := range e.all {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, e.client.Close())...)
}
