// Command devmongo finds or starts a MongoDB server and runs a program with it.
//
//	devmongo exec [--kind K] -- command args…   runs the command with MONGODB_URI set
//	devmongo serve [--kind K] [--port N]        prints the URI and runs until a signal
//	devmongo which                              lists the kinds and whether this machine has them
//
// With --members 3 the server is a replica set of three, with --shards 2 a sharded cluster, whose members
// serve prints too. With --version exec and serve print the server's version and end.
//
// Besides MONGODB_URI, exec sets MONGOLOCK_KIND, MONGOLOCK_HAS (what the server can show) and
// MONGOLOCK_CONTROL (where it can be killed, restarted and stepped down).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/mongolock/mongolock/devmongo"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

const usage = `usage: devmongo exec [--kind K] [--image I] [--members N | --shards N] [--clocks] [-v] -- command args…
       devmongo serve [--kind K] [--image I] [--members N | --shards N] [--clocks] [--port N] [--dir D] [--auth] [-v]
       devmongo exec|serve … --version
       devmongo which
kinds: external, mongod, secantus, docker, ferretdb; by default the first that this machine has
`

// exitFailed and exitUsage are devmongo's own exit codes; all others are the command's.
const (
	exitFailed = 1
	exitUsage  = 2
)

// run returns the exit code instead of ending the process, so that servers are stopped first.
func run(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	// The first signal ends everything in order, however long that takes: a server left behind would
	// be worse than a slow end.
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()

	flags := flag.NewFlagSet("devmongo "+args[0], flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	var (
		kind    = flags.String("kind", "", "")
		port    = flags.Int("port", 0, "")
		dir     = flags.String("dir", "", "")
		auth    = flags.Bool("auth", false, "")
		members = flags.Int("members", 0, "")
		shards  = flags.Int("shards", 0, "")
		clocks  = flags.Bool("clocks", false, "")
		image   = flags.String("image", "", "")
		version = flags.Bool("version", false, "")
		verbose = flags.Bool("v", false, "")
	)
	if err := flags.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return exitUsage
	}
	level := slog.LevelWarn
	if *verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	opts := []devmongo.Option{
		devmongo.WithKind(devmongo.Kind(*kind)),
		devmongo.WithPort(*port),
		devmongo.WithDir(*dir),
		devmongo.WithLogger(log),
	}
	// Servers that tests start for themselves are like the shared one in this.
	alike := []devmongo.Option{devmongo.Members(*members), devmongo.WithImage(*image)}
	opts = append(opts, devmongo.Shards(*shards))
	if *auth {
		opts = append(opts, devmongo.WithAuth())
	}
	if *clocks {
		opts = append(opts, devmongo.OwnClocks())
	}

	var (
		code int
		err  error
	)
	switch command := args[0]; {
	case *version && (command == "exec" || command == "serve"):
		code, err = printVersion(ctx, os.Stdout, append(opts, alike...))
	case command == "exec" && flags.NArg() > 0:
		code, err = execute(ctx, flags.Args(), log, opts, alike)
	case command == "serve" && flags.NArg() == 0:
		code, err = serve(ctx, os.Stdout, append(opts, alike...))
	case command == "which" && flags.NArg() == 0:
		code = which(ctx, os.Stdout)
	default:
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

func serve(ctx context.Context, out io.Writer, opts []devmongo.Option) (int, error) {
	server, err := devmongo.Start(ctx, opts...)
	if err != nil {
		return exitFailed, err
	}
	announce(server)
	fmt.Fprintln(out, server.URI())
	if all := server.Members(); len(all) > 1 {
		for i, m := range all {
			fmt.Fprintf(out, "member %d: %s\n", i, m.Host())
		}
	}
	<-ctx.Done()
	if err := server.Stop(); err != nil {
		return exitFailed, err
	}
	return 0, nil
}

func printVersion(ctx context.Context, out io.Writer, opts []devmongo.Option) (int, error) {
	server, err := devmongo.Start(ctx, opts...)
	if err != nil {
		return exitFailed, err
	}
	fmt.Fprintln(out, server.Kind(), server.Version())
	return 0, server.Stop()
}

func which(ctx context.Context, out io.Writer) int {
	code, mark := exitFailed, "* "
	for _, f := range devmongo.Find(ctx) {
		if f.Err != nil {
			fmt.Fprintf(out, "  %-9s no: %v\n", f.Kind, f.Err)
			continue
		}
		fmt.Fprintf(out, "%s%-9s yes\n", mark, f.Kind)
		code, mark = 0, "  " // only the first is marked
	}
	return code
}

// announce reports which server is used and what it cannot show.
func announce(server *devmongo.Server) {
	fmt.Fprintf(os.Stderr, "devmongo: using %s, which %s\n", server.Kind(), server.Limits())
}
