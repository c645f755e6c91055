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
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// A daemon is a server process with a directory of its own.
type daemon struct {
	cmd *exec.Cmd
	dir string
}

func (d daemon) stop() error {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
	return os.RemoveAll(d.dir)
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// start starts a server and waits until it accepts connections at its address.
func start(ctx context.Context, address, dir string, cmd *exec.Cmd) (daemon, error) {
	d := daemon{cmd, dir}
	if err := cmd.Start(); err != nil {
		return d, errors.Join(err, os.RemoveAll(dir))
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && ctx.Err() == nil; {
		if conn, err := new(net.Dialer).DialContext(ctx, "tcp", address); err == nil {
			return d, conn.Close()
		}
		<-time.After(20 * time.Millisecond)
	}
	return d, errors.Join(fmt.Errorf("%s does not answer at %s", cmd.Path, address), d.stop())
}

func onRedis(name, server string, settings ...string) func(context.Context) (contender, error) {
	return func(ctx context.Context) (contender, error) {
		address, err := freeAddress()
		if err != nil {
			return contender{}, err
		}
		dir, err := os.MkdirTemp("", "compare-redis-")
		if err != nil {
			return contender{}, err
		}
		_, port, _ := strings.Cut(address, ":")
		cmd := exec.CommandContext(ctx, "redis-server", append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", dir}, settings...)...)
		d, err := start(ctx, address, dir, cmd)
		if err != nil {
			return contender{}, err
		}
		asked := new(requests)
		return contender{
			name: name, server: server, close: d.stop, asked: asked,
			open: func(context.Context) (locks, error) {
				client := redis.NewClient(&redis.Options{Addr: address})
				client.AddHook(asked)
				return byRedis{client, redislock.New(client)}, nil
			},
		}, nil
	}
}

type byRedis struct {
	client *redis.Client
	locker *redislock.Client
}

func (r byRedis) acquire(ctx context.Context, key string) (func() error, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // without a deadline it would wait for no longer than the TTL
	lock, err := r.locker.Obtain(ctx, key, 30*time.Second, &redislock.Options{RetryStrategy: redislock.LinearBackoff(pollPause)})
	if err != nil {
		cancel()
		return nil, err
	}
	return func() error { defer cancel(); return lock.Release(ctx) }, nil
}

func (r byRedis) close() error { return r.client.Close() }

// The environment of a child that runs the etcd server.
const (
	etcdDir     = "MONGOLOCK_COMPARE_ETCD_DIR"
	etcdAddress = "MONGOLOCK_COMPARE_ETCD_ADDRESS"
	etcdPeers   = "MONGOLOCK_COMPARE_ETCD_PEERS"
)

// serveEtcd runs one member with its default settings, in a process of its own.
func serveEtcd() {
	config := embed.NewConfig()
	config.Dir = os.Getenv(etcdDir)
	config.LogLevel = "error"
	client := []url.URL{{Scheme: "http", Host: os.Getenv(etcdAddress)}}
	peer := []url.URL{{Scheme: "http", Host: os.Getenv(etcdPeers)}}
	config.ListenClientUrls, config.AdvertiseClientUrls = client, client
	config.ListenPeerUrls, config.AdvertisePeerUrls = peer, peer
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	if _, err := embed.StartEtcd(config); err != nil {
		fmt.Fprintln(os.Stderr, "compare: etcd:", err)
		os.Exit(1)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt)
	<-ended
}

func onEtcd(ctx context.Context) (contender, error) {
	address, err := freeAddress()
	if err != nil {
		return contender{}, err
	}
	peers, err := freeAddress()
	if err != nil {
		return contender{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return contender{}, err
	}
	dir, err := os.MkdirTemp("", "compare-etcd-")
	if err != nil {
		return contender{}, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), etcdDir+"="+dir, etcdAddress+"="+address, etcdPeers+"="+peers)
	cmd.Stderr = os.Stderr
	d, err := start(ctx, address, dir, cmd)
	if err != nil {
		return contender{}, err
	}
	asked := new(requests)
	return contender{
		name: "etcd's concurrency.Mutex", server: "etcd " + version.Version + ", one member", close: d.stop, asked: asked,
		open: func(context.Context) (locks, error) {
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialOptions: []grpc.DialOption{grpc.WithStatsHandler(asked)}})
			if err != nil {
				return nil, err
			}
			session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
			return byEtcd{client, session}, err
		},
	}, nil
}

type byEtcd struct {
	client  *clientv3.Client
	session *concurrency.Session
}

func (e byEtcd) acquire(ctx context.Context, key string) (func() error, error) {
	mutex := concurrency.NewMutex(e.session, "/"+key+"/")
	if err := mutex.Lock(ctx); err != nil {
		return nil, err
	}
	return func() error { return mutex.Unlock(ctx) }, nil
}

func (e byEtcd) close() error { return errors.Join(e.session.Close(), e.client.Close()) }
