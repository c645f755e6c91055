package memmongo_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongolock/mongolock"
	"github.com/mongolock/mongolock/internal/test/mongo/memmongo"
)

// Three processes keep four leases each for ten minutes, on a server that is slow with every command. None is lost once
// the connections are open, as long as there is time for the two commands of a renewal; and if there is not, the log
// says so once.
func TestASlowServerCostsNoLease(t *testing.T) {
	const ttl = 6 * time.Second
	for _, c := range []struct {
		takes   time.Duration
		enough  bool
		atFirst int // so many may be lost while connections are opened, at most
	}{{300 * time.Millisecond, true, 0}, {time.Second, true, 4}, {3 * time.Second, false, 12}} {
		t.Run(c.takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := memmongo.New()
				server.Slow(c.takes)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				var lost, later atomic.Int64
				start := time.Now()
				log := new(lines)
				var ended sync.WaitGroup
				var all []*mongolock.Client
				for p := range 3 {
					client, err := mongolock.New(server.Client(t).Database("d").Collection("locks"), mongolock.TTL(ttl), mongolock.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
					require.NoError(t, err)
					all = append(all, client)
					for k := range 4 {
						ended.Go(func() {
							for ctx.Err() == nil {
								lease, err := client.Acquire(ctx, fmt.Sprintf("part-%d", 4*p+k))
								if err != nil {
									continue
								}
								select {
								case <-lease.Done():
									if errors.Is(lease.Err(), mongolock.ErrLost) {
										lost.Add(1)
										if time.Since(start) > 10*time.Second {
											later.Add(1)
										}
									}
								case <-ctx.Done():
								}
								_ = lease.Release()
							}
						})
					}
				}
				ended.Wait()
				for _, client := range all {
					_ = client.Close()
				}
				t.Logf("%d leases lost, %d of them later; log:\n%s", lost.Load(), later.Load(), log)
				assert.LessOrEqual(t, lost.Load()-later.Load(), int64(c.atFirst))
				assert.Equal(t, c.enough, later.Load() == 0)
				said := 0
				for what, n := range log.text {
					if strings.Contains(what, "TTL is too short") {
						said += n
					}
				}
				assert.LessOrEqual(t, said, 3, "once for each client")
				if c.enough {
					assert.LessOrEqual(t, log.n, 12)
				} else {
					assert.Equal(t, 3, said)
				}
			})
		})
	}
}

// lines are those of a log, counted by what they say.
type lines struct {
	mu   sync.Mutex
	n    int
	text map[string]int
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	if l.text == nil {
		l.text = map[string]int{}
	}
	_, what, _ := strings.Cut(string(b), "msg=")
	l.text[what[:min(100, len(what))]]++
	return len(b), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for what, n := range l.text {
		fmt.Fprintf(&b, "%6d %s\n", n, what)
	}
	return b.String()
}
