// Command mongolock runs commands under locks of package mongolock, shows their holders, and
// says whether a deployment can be trusted with locks.
//
//	mongolock run nightly -- ./report.sh
//	mongolock ls
//	mongolock doctor
//
// `mongolock --help` lists the commands and the exit codes.
//
//	main.go      the command line, and how it is dispatched
//	exit.go      exit codes, and errors as sentences
//	connect.go   the deployment, the database, the collection
//	output.go    text, tables and JSON
//	run.go       run: the key, and what is told about it
//	once.go      once and once-ls
//	due.go       run --at: the claim of a due time
//	task.go      what run, once and paths lock share: the command, its environment, signals
//	run_unix.go  the command and its process group, from its start to its end
//	job_unix.go  stops, and which process group has the terminal
//	group_*.go   process groups
//	guard_*.go   the second process, which ends the command if this one cannot; guardian_*.go keeps it running
//	keys.go      ls and show; break.go and watch.go have those
//	listen.go    watch: when it looks
//	paths.go     paths lock; holding.go takes the path, pathlist.go has ls and break
//	leaders.go   leaders; partitions.go has partitions, jobs.go jobs, documents.go documents
//	doctor*.go   doctor, a file for each group of checks
//	generate.go  the man page and the completions, made from the command line's grammar (grammar.go)
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// The kernel ties a command's end to the thread that started it (see pdeathsig). So the
// main goroutine keeps the main thread, which lives as long as the process.
func init() { runtime.LockOSThread() }

// A cli is the grammar of the command line.
type cli struct {
	connection
	Output  string           `group:"common" help:"Print text, or json: one object a line." enum:"text,json" default:"text" env:"MONGOLOCK_OUTPUT" placeholder:"text|json"`
	Version kong.VersionFlag `group:"common" help:"Print the version."`

	Run        runCmd        `cmd:"" help:"Run a command while holding a key."`
	Once       onceCmd       `cmd:"" help:"Run a command once, ever, on one of many hosts."`
	Ls         lsCmd         `cmd:"" help:"List keys and their holders."`
	Show       showCmd       `cmd:"" help:"Show who holds a key, and who waits."`
	Watch      watchCmd      `cmd:"" help:"Show keys as they change hands."`
	Break      breakCmd      `cmd:"" help:"Take a key away from its holders."`
	Leaders    leadersCmd    `cmd:"" help:"Show who leads."`
	Partitions partitionsCmd `cmd:"" help:"Show which worker has which partitions."`
	Jobs       jobsCmd       `cmd:"" help:"List scheduled jobs; run, pause, resume or forget one."`
	OnceLs     onceLsCmd     `cmd:"" help:"List what was run once: by whom, when, how it ended."`
	Paths      pathsCmd      `cmd:"" help:"Lock paths of a tree; list and break such locks."`
	Documents  documentsCmd  `cmd:"" help:"List the locked or dead documents of a collection."`
	Doctor     doctorCmd     `cmd:"" help:"Check whether a deployment can be trusted with locks."`

	Completion completionCmd `cmd:"" help:"Print a shell's completion script."`
	Man        manCmd        `cmd:"" help:"Print the man page."`
}

const commonFlags = "Common flags:"

const about = `Distributed locks on MongoDB, for people and scripts.

   mongolock run nightly -- ./report.sh
   mongolock ls

A list is a table on a terminal, and elsewhere lines of fields with tabs between them. Times are
those of the server's clock. NO_COLOR turns colours off.`

// An app holds what a command works with.
type app struct {
	*cli
	stdout, stderr io.Writer
	model          *kong.Application
	begun          time.Time
}

func parser(c *cli, out, errs io.Writer) (*kong.Kong, error) {
	k, err := kong.New(c,
		kong.Name("mongolock"),
		kong.Description(about),
		kong.Writers(out, errs),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100}),
		kong.Vars{"version": version()},
		kong.ExplicitGroups([]kong.Group{{Key: "common", Title: commonFlags}}),
		kong.Help(help),
	)
	if err == nil {
		own := k.Model.HelpFlag
		own.Help, own.Group = "Print help; after a command, its own.", k.Model.Flags[len(k.Model.Flags)-1].Group
	}
	return k, err
}

// help is kong's help in another order. The common flags and the exit codes are at the end of the
// program's own help, and not in that of each command.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	options.Compact = true
	out := ctx.Stdout
	var text strings.Builder
	ctx.Stdout = &text
	err := kong.DefaultHelpPrinter(options, ctx)
	ctx.Stdout = out
	_, rest, _ := strings.Cut(text.String(), "\n\n")
	before, rest, _ := strings.Cut(rest, commonFlags+"\n")
	flags, after, _ := strings.Cut(strings.TrimSpace(rest), "\n\n")
	usage, last := "<command> [flags] [arguments]", commonFlags+"\n  "+flags+"\n\n"+exitHelp
	if cmd := ctx.Selected(); cmd != nil {
		usage, last = synopsis(cmd), "See mongolock --help for the common flags (--uri, --db, --output and others) and the exit codes."
	}
	if after != "" {
		before += after + "\n\n"
	}
	_, failed := fmt.Fprintf(out, "Usage: mongolock %s\n\n%s%s\n", usage, before, last)
	return errors.Join(err, failed)
}

func main() {
	if status, is := asAnother(); is {
		os.Exit(status)
	}
	os.Exit(execute(os.Args[1:]))
}

func execute(args []string) int {
	c := &cli{}
	k, err := parser(c, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mongolock:", err)
		return exitFailed
	}
	ctx, err := k.Parse(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "mongolock: %s\n", usageText(err))
		return exitUsage
	}
	a := &app{cli: c, stdout: os.Stdout, stderr: os.Stderr, model: k.Model, begun: time.Now()}
	err = ctx.Run(a)
	code, say := verdict(err)
	if say != "" {
		fmt.Fprintf(os.Stderr, "mongolock: %s\n", say)
	}
	var e *exitError
	if errors.As(err, &e) && e.signal != 0 {
		raise(e.signal, e.typed)
	}
	return code
}

// usageText returns the parser's error, with the help that leads on.
func usageText(err error) string {
	text := err.Error()
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if cmd := parse.Context.Selected(); cmd != nil {
			return fmt.Sprintf("%s (see mongolock %s --help)", text, strings.TrimPrefix(cmd.FullPath(), "mongolock "))
		}
	}
	return text + " (see mongolock --help)"
}
