package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The environment of a child that runs the NATS server.
const (
	natsDir     = "MONGOLOCK_COMPARE_NATS_DIR"
	natsAddress = "MONGOLOCK_COMPARE_NATS_ADDRESS"
)

// serveNATS runs one server whose streams are on disk before it answers, in a process of its own.
func serveNATS() error {
	host, port, err := net.SplitHostPort(os.Getenv(natsAddress))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{Host: host, Port: n, JetStream: true, StoreDir: os.Getenv(natsDir), SyncAlways: true, NoLog: true})
	if err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	s.Start()
	s.WaitForShutdown()
	return nil
}

func startNATS(ctx context.Context) (place, func() error, error) {
	address, err := freeAddress()
	if err != nil {
		return place{}, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return place{}, nil, err
	}
	return startDaemon(ctx, address, func(dir string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(os.Environ(), natsDir+"="+dir, natsAddress+"="+address)
		cmd.Stderr = os.Stderr
		return cmd
	})
}

// A natsLocks is a bucket of keys: whoever creates a key has it, and updates it every third of the
// bucket's TTL; whoever waits watches it. No library of NATS does this.
type natsLocks struct {
	conn  *nats.Conn
	keys  jetstream.KeyValue
	ttl   time.Duration
	asked *requests

	mu   sync.Mutex // protects what follows
	sent uint64     // messages that were counted
}

func openNATS(ctx context.Context, at place, s setting, asked *requests) (locks, error) {
	var opts []nats.Option
	if s.over != nil {
		opts = append(opts, nats.SetCustomDialer(natsDialer{s.over}))
	}
	conn, err := nats.Connect("nats://"+at.Address, opts...)
	if err != nil {
		return locks{}, err
	}
	streams, err := jetstream.New(conn)
	if err != nil {
		return locks{}, err
	}
	ttl := s.ttlOr(usualTTL)
	keys, err := streams.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: "locks_" + strings.ReplaceAll(ttl.String(), ".", "_"), TTL: ttl, LimitMarkerTTL: time.Minute,
	})
	if err != nil {
		return locks{}, errors.Join(err, closeNATS(conn))
	}
	l := &natsLocks{conn: conn, keys: keys, ttl: ttl, asked: asked}
	l.count()
	return locks{l.acquire, func() error { return closeNATS(conn) }}, nil
}

func closeNATS(conn *nats.Conn) error { conn.Close(); return nil }

type natsDialer struct{ *link }

func (d natsDialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// count adds the messages that were sent since the last count.
func (l *natsLocks) count() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.conn.Stats().OutMsgs
	l.asked.Add(int64(now - l.sent)) //nolint:gosec // far from the limit
	l.sent = now
}

func (l *natsLocks) acquire(ctx context.Context, key string) (func() error, error) {
	defer l.count()
	revision, err := l.keys.Create(ctx, key, nil)
	switch {
	case err == nil:
		return l.held(ctx, key, revision), nil
	case !errors.Is(err, jetstream.ErrKeyExists):
		return nil, err
	}
	watch, err := l.keys.Watch(ctx, key)
	if err != nil {
		return nil, err
	}
	defer watch.Stop() //nolint:errcheck // it ends with the connection
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case change, open := <-watch.Updates():
			switch {
			case !open:
				return nil, errors.New("nats: the watch ended")
			case change == nil, change.Operation() == jetstream.KeyValuePut:
				continue
			}
		}
		revision, err = l.keys.Create(ctx, key, nil)
		switch l.count(); {
		case err == nil:
			return l.held(ctx, key, revision), nil
		case !errors.Is(err, jetstream.ErrKeyExists):
			return nil, err
		}
	}
}

// held renews a key until it is released.
func (l *natsLocks) held(ctx context.Context, key string, revision uint64) (release func() error) {
	ctx = context.WithoutCancel(ctx)
	over, renews := make(chan struct{}), sync.WaitGroup{}
	renews.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(l.ttl / 3):
			}
			if next, err := l.keys.Update(ctx, key, nil, revision); err == nil {
				revision = next
			}
			l.count()
		}
	})
	return func() error {
		close(over)
		renews.Wait()
		defer l.count()
		return l.keys.Delete(ctx, key, jetstream.LastRevision(revision))
	}
}
