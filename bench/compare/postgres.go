package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresProgram finds a program of PostgreSQL, which Debian keeps off the PATH.
func postgresProgram(name string) string {
	if found, err := exec.LookPath(name); err == nil {
		return found
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	return append(found, name)[max(0, len(found)-1)]
}

// startPostgres starts PostgreSQL as installed, but for more connections: each waiter needs one. It
// does not run as root; the user postgres is the package's.
func startPostgres(ctx context.Context) (place, func() error, error) {
	address, err := freeAddress()
	if err != nil {
		return place{}, nil, err
	}
	as := new(syscall.SysProcAttr)
	if os.Getuid() == 0 {
		who, err := user.Lookup("postgres")
		if err != nil {
			return place{}, nil, err
		}
		uid, _ := strconv.ParseUint(who.Uid, 10, 32)
		gid, _ := strconv.ParseUint(who.Gid, 10, 32)
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	var made error
	_, port, _ := strings.Cut(address, ":")
	at, stop, err := startDaemon(ctx, address, func(dir string) *exec.Cmd {
		if as.Credential != nil {
			made = os.Chown(dir, int(as.Credential.Uid), int(as.Credential.Gid))
		}
		data := filepath.Join(dir, "data")
		init := exec.CommandContext(ctx, postgresProgram("initdb"), "-D", data, "-A", "trust", "-U", "lock")
		init.SysProcAttr, init.Dir = as, dir
		if said, err := init.CombinedOutput(); err != nil {
			made = errors.Join(made, fmt.Errorf("initdb: %w: %s", err, said))
		}
		cmd := exec.CommandContext(ctx, postgresProgram("postgres"), "-D", data, "-p", port, "-k", dir, "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200", "-c", "logging_collector=off")
		cmd.SysProcAttr, cmd.Dir = as, dir
		return cmd
	})
	return at, stop, errors.Join(made, err)
}

// openPostgres opens advisory locks of PostgreSQL by pgx. Whoever holds or waits for one has a
// connection of its own; the lock ends with it.
func openPostgres(ctx context.Context, at place, asked *requests) (locks, error) {
	conf, err := pgxpool.ParseConfig("postgres://lock@" + at.Address + "/postgres?sslmode=disable")
	if err != nil {
		return locks{}, err
	}
	conf.MaxConns = 16
	conf.ConnConfig.Tracer = asked
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return locks{}, err
	}
	acquire := func(ctx context.Context, key string) (func() error, error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtextextended($1, 0))", key); err != nil {
			conn.Release()
			return nil, err
		}
		return func() error {
			defer conn.Release()
			_, err := conn.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock(hashtextextended($1, 0))", key)
			return err
		}, nil
	}
	return locks{acquire, func() error { pool.Close(); return nil }}, nil
}

// For pgx.

func (r *requests) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.Add(1)
	return ctx
}

func (r *requests) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
