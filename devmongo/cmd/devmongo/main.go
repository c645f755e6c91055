// Command devmongo finds or starts a MongoDB server and runs a program with it.
//
//	devmongo exec [--kind K] -- command args…   runs the command with MONGODB_URI set
//	devmongo serve [--kind K] [--port N]        prints the URI and runs until a signal
//	devmongo which                              lists the kinds and whether this machine has them
//
// With --members 3 the server is a replica set of three, whose members serve prints too.
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

	"github.com/mongolock/mongolock/devmongo/internal/servers"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

const usage = `usage: devmongo exec [--kind K] [--image I] [--members N] [-v] -- command args…
       devmongo serve [--kind K] [--image I] [--members N] [--port N] [-v]
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
		members = flags.Int("members", 0, "")
		image   = flags.String("image", "", "")
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
	config := servers.Config{Kind: servers.Kind(*kind), Port: *port, Members: *members, Image: *image, Log: log}

	var (
		code int
		err  error
	)
	switch command := args[0]; {
	case command == "exec" && flags.NArg() > 0:
		code, err = execute(ctx, flags.Args(), config)
	case command == "serve" && flags.NArg() == 0:
		code, err = serve(ctx, os.Stdout, config)
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

func serve(ctx context.Context, out io.Writer, config servers.Config) (int, error) {
	server, err := servers.Start(ctx, config)
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

func which(ctx context.Context, out io.Writer) int {
	code, mark := exitFailed, "* "
	for _, f := range servers.Find(ctx) {
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
func announce(server *servers.Server) {
	fmt.Fprintf(os.Stderr, "devmongo: using %s, which %s\n", server.Kind(), server.Limits())
}
