// Command mongolock-mcp serves path locks to a coding agent: it is an MCP server on standard
// input and output, one for each client. Start it from the client's configuration:
//
//	{"mcpServers": {"locks": {"command": "mongolock-mcp", "args": ["--dir", "/var/tmp/locks"]}}}
//
// With --dir the clients of one host lock against each other; without it, on MongoDB, those of all
// hosts. Its tools are lock, try, renew, release and list. A lock covers a path and all that is
// below it, and has a token. The command mongolock locks the same trees: mongolock paths.
//
// Paths are given back when the client releases them, when it has not renewed them in the time
// that it asked for, and when it goes: when its connection ends, however it ended. If this server
// is killed, after the TTL. A path that a person breaks is lost: renew says so. Locks are
// advisory. They keep those apart that ask.
//
// The exit code is 64 for wrong usage, 69 if no server can be reached, and 70 for any other
// failure.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/mongolock/mongolock/pathlock"
)

const (
	exitUsage       = 64
	exitUnreachable = 69
	exitFailed      = 70
)

// errUsage and errUnreachable say which exit code an error has.
var (
	errUsage       = errors.New("wrong usage")
	errUnreachable = errors.New("no server can be reached")
)

// settings are those of the command line.
type settings struct {
	uri, db, collection, owner string
	tree, dir                  string
	ttl, margin, longest       time.Duration
	verbose                    bool
}

// read reads the command line. Defaults are in the environment, as those of the command mongolock.
func read(args []string, help io.Writer) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("mongolock-mcp", flag.ContinueOnError)
	f.SetOutput(help)
	env := func(name, standard string) string { return cmp.Or(os.Getenv(name), standard) }
	f.StringVar(&s.uri, "uri", env("MONGOLOCK_URI", env("MONGODB_URI", "mongodb://localhost:27017")), "connection `string` of the deployment (MONGOLOCK_URI, MONGODB_URI)")
	f.StringVar(&s.db, "db", env("MONGOLOCK_DB", ""), "database `name`; by default that of the connection string, or mongolock (MONGOLOCK_DB)")
	f.StringVar(&s.collection, "collection", env("MONGOLOCK_COLLECTION", "locks"), "collection `name` (MONGOLOCK_COLLECTION)")
	f.StringVar(&s.owner, "owner", env("MONGOLOCK_OWNER", ""), "the `name` that others see beside a path; by default host/pid (MONGOLOCK_OWNER)")
	f.StringVar(&s.tree, "tree", env("MONGOLOCK_TREE", "files"), "the tree's `name` (MONGOLOCK_TREE)")
	f.StringVar(&s.dir, "dir", env("MONGOLOCK_DIR", ""), "keep the tree in this `directory`, for the processes of one host (MONGOLOCK_DIR)")
	f.DurationVar(&s.ttl, "ttl", 30*time.Second, "how long the paths of a client stay taken after this server was killed")
	f.DurationVar(&s.margin, "margin", 0, "how long before others can be granted a path a lost lock ends; 0: a tenth of the TTL, at most 1s")
	f.DurationVar(&s.longest, "longest", time.Hour, "the longest time for which a client may ask for a path before it has to renew")
	f.BoolVar(&s.verbose, "v", false, "say on standard error what the library logs")
	if err := f.Parse(args); err != nil {
		return nil, errors.Join(errUsage, err)
	}
	const year = 365 * 24 * time.Hour
	var wrong error
	switch {
	case f.NArg() > 0:
		wrong = fmt.Errorf("unexpected argument %s", f.Arg(0))
	case s.ttl < 100*time.Millisecond || s.ttl > year:
		wrong = fmt.Errorf("--ttl=%v: must be from 100ms to a year", s.ttl)
	case s.margin < 0 || s.margin > s.ttl/2:
		wrong = fmt.Errorf("--margin=%v: must be from 0 to half the TTL of %v", s.margin, s.ttl)
	case s.longest < time.Second || s.longest > year:
		wrong = fmt.Errorf("--longest=%v: must be from 1s to a year", s.longest)
	case len(s.owner) > 256:
		wrong = fmt.Errorf("--owner: has %d bytes: at most 256", len(s.owner))
	}
	if wrong != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, wrong)
	}
	s.margin = cmp.Or(s.margin, min(time.Second, s.ttl/10))
	return s, nil
}

func main() { os.Exit(execute(os.Args[1:])) }

func execute(args []string) int {
	err := run(args)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	}
	fmt.Fprintf(os.Stderr, "mongolock-mcp: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errUnreachable):
		return exitUnreachable
	}
	return exitFailed
}

func run(args []string) error {
	s, err := read(args, os.Stderr)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal ends the program at once
	tree, shut, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer shut()
	return s.serve(ctx, tree)
}

// open opens the tree. The function that it returns closes it.
func (s *settings) open(ctx context.Context) (*pathlock.Tree, func(), error) {
	storage, shut, err := s.storage(ctx)
	if err != nil {
		return nil, nil, err
	}
	tree, err := pathlock.New(storage, s.tree, pathlock.WithLogger(s.logger()), pathlock.WithMargin(s.margin))
	if err != nil {
		shut()
		return nil, nil, fmt.Errorf("%w: --tree: %w", errUsage, err)
	}
	return tree, func() { _ = tree.Close(); shut() }, nil
}

// storage opens the directory, or reaches the deployment.
func (s *settings) storage(ctx context.Context) (pathlock.Storage, func(), error) {
	if s.dir != "" {
		dir, err := pathlock.InDir(s.dir)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: --dir: %w", errUsage, err)
		}
		return dir, func() { _ = dir.Close() }, nil
	}
	cs, err := connstring.ParseAndValidate(s.uri)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: --uri is no connection string", errUsage) // the error may have the password
	}
	client, err := mongo.Connect(options.Client().ApplyURI(s.uri).SetAppName(cmp.Or(cs.AppName, "mongolock-mcp")))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: --uri is no connection string", errUsage)
	}
	shut := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = client.Disconnect(ctx)
	}
	const reachFor = 4500 * time.Millisecond
	within, cancel := context.WithTimeout(ctx, reachFor)
	defer cancel()
	if err := client.Ping(within, readpref.Primary()); err != nil {
		shut()
		if strings.Contains(err.Error(), "auth error") {
			return nil, nil, fmt.Errorf("%s: the server refuses the user", strings.Join(cs.Hosts, ", "))
		}
		return nil, nil, fmt.Errorf("%w: %s", errUnreachable, strings.Join(cs.Hosts, ", "))
	}
	storage, err := pathlock.OnMongo(client.Database(cmp.Or(s.db, cs.Database, "mongolock")).Collection(s.collection))
	if err != nil {
		shut()
		return nil, nil, err
	}
	return storage, shut, nil
}

// logger returns where the library logs: nowhere, unless asked.
func (s *settings) logger() *slog.Logger {
	if !s.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// who returns what others see beside a path: the process, and what it does.
func (s *settings) who(note string) []byte {
	who := s.owner
	if who == "" {
		host, _ := os.Hostname()
		who = fmt.Sprintf("%s/%d", cmp.Or(host, "unknown"), os.Getpid())
	}
	if note != "" {
		who += ": " + note
	}
	return []byte(who)
}

// reason returns an error on one line, without the library's name before it.
func reason(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	return strings.TrimPrefix(strings.TrimPrefix(text, "mongolock: "), "pathlock: ")
}

// version returns the version of the module, as the toolchain knows it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
