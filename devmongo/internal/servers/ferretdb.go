//go:build !devmongo_light

package servers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/FerretDB/FerretDB/ferretdb"

	"github.com/mongolock/mongolock/devmongo/internal/gate"
)

func findFerretDB(_ context.Context, s Config) (backend, error) {
	switch {
	case s.Auth:
		return nil, errNoAuth
	case s.many():
		return nil, errNoSet
	}
	return &ferret{port: s.Port, log: s.Log}, nil
}

// A ferret is FerretDB v1 on SQLite in this process. It finds a document and updates it in two steps, so
// clients reach it only through a gate.
type ferret struct {
	port int
	log  *slog.Logger

	dir    string
	addr   string // the gate's, the same after a restart
	gate   *gate.Gate
	direct string // FerretDB's own address, past the gate
	end    func() // ends FerretDB and waits for it; nil when it does not run
}

func (f *ferret) start(ctx context.Context) (uri string, err error) {
	if f.dir, err = os.MkdirTemp("", "devmongo-"); err != nil {
		return "", err
	}
	if f.port == 0 {
		if f.port, err = freePort(); err != nil {
			return "", errors.Join(err, f.stop())
		}
	}
	f.addr = fmt.Sprintf("127.0.0.1:%d", f.port)
	if err := f.run(ctx); err != nil {
		return "", errors.Join(err, f.stop())
	}
	return "mongodb://" + f.addr + "/", nil
}

func (f *ferret) run(ctx context.Context) error {
	// FerretDB logs every connection at Info and every closed one at Warn.
	quiet := slog.New(atMostDebug{f.log.With("program", "ferretdb").Handler()})
	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Handler:   "sqlite",
		SQLiteURL: (&url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(f.dir) + "/"}).String(),
		Logger:    quiet,
	})
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		db.Run(running)
	}()
	f.end = func() {
		cancel()
		<-ended
	}
	f.direct = strings.Trim(strings.TrimPrefix(db.MongoDBURI(), "mongodb://"), "/")
	if f.gate, err = gate.Listen(f.addr, f.direct, f.log); err != nil {
		return err
	}
	return awaitPrimary(ctx, "mongodb://"+f.addr+"/")
}

func (f *ferret) kill() error { return errors.ErrUnsupported }

func (f *ferret) restart(ctx context.Context) error {
	f.halt()
	return f.run(ctx)
}

func (f *ferret) stop() error {
	f.halt()
	return os.RemoveAll(f.dir)
}

// halt closes the gate first, because FerretDB waits some seconds for its clients to disconnect.
func (f *ferret) halt() {
	if f.gate != nil {
		f.gate.Close()
		f.gate = nil
	}
	if f.end != nil {
		f.end()
		f.end = nil
	}
}

// atMostDebug is a log handler that lowers every record to Debug.
type atMostDebug struct{ slog.Handler }

func (h atMostDebug) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

func (h atMostDebug) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

func (h atMostDebug) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atMostDebug{h.Handler.WithAttrs(attrs)}
}

func (h atMostDebug) WithGroup(name string) slog.Handler {
	return atMostDebug{h.Handler.WithGroup(name)}
}
