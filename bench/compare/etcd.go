package main

import (
	"context"
	"errors"
	"fmt"
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
	return startDaemon(ctx, address, func(dir string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(os.Environ(), etcdDir+"="+dir, etcdAddress+"="+address, etcdPeers+"="+peers)
		cmd.Stderr = os.Stderr
		return cmd
	})
}

// openEtcd opens a client with a session for each lock at a time: two locks of one session do not
// exclude each other.
func openEtcd(_ context.Context, at place, asked *requests) (locks, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{at.Address}, DialOptions: []grpc.DialOption{grpc.WithStatsHandler(asked)}})
	if err != nil {
		return locks{}, err
	}
	var mu sync.Mutex // protects what follows
	var idle, all []*concurrency.Session
	session := func() (*concurrency.Session, error) {
		mu.Lock()
		defer mu.Unlock()
		if n := len(idle); n > 0 {
			s := idle[n-1]
			idle = idle[:n-1]
			return s, nil
		}
		one, err := concurrency.NewSession(client, concurrency.WithTTL(int(usualTTL/time.Second)))
		if err == nil {
			all = append(all, one)
		}
		return one, err
	}
	return locks{
		acquire: func(ctx context.Context, key string) (func() error, error) {
			one, err := session()
			if err != nil {
				return nil, err
			}
			mutex := concurrency.NewMutex(one, "/"+key+"/")
			return func() error {
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					idle = append(idle, one)
				}()
				return mutex.Unlock(context.WithoutCancel(ctx))
			}, mutex.Lock(ctx)
		},
		close: func() error {
			var errs []error
			for _, one := range all {
				errs = append(errs, one.Close())
			}
			return errors.Join(append(errs, client.Close())...)
		},
	}, nil
}
