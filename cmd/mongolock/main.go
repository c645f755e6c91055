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
//	paths.go     paths lock; holding.go refreshes what it holds, pathlist.go has ls and break
//	leaders.go   leaders; jobs.go has jobs, documents.go documents
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
	Output  string           `help:"How to answer: text, or json (one object a line)." enum:"text,json" default:"text" env:"MONGOLOCK_OUTPUT" placeholder:"text|json"`
	Version kong.VersionFlag `help:"Show the version and exit."`

	Run       runCmd       `cmd:"" help:"Run a command while holding a key."`
	Once      onceCmd      `cmd:"" help:"Run a command once, ever, on one of many hosts; the others wait for it."`
	Ls        lsCmd        `cmd:"" help:"List keys and their holders."`
	Show      showCmd      `cmd:"" help:"Show who holds a key."`
	Watch     watchCmd     `cmd:"" help:"Show changes of keys as they happen."`
	Break     breakCmd     `cmd:"" help:"Take a key away from its holders."`
	Leaders   leadersCmd   `cmd:"" help:"Show who leads."`
	Jobs      jobsCmd      `cmd:"" help:"Show scheduled jobs, run one now, pause, resume or forget it."`
	OnceLs    onceLsCmd    `cmd:"" help:"List what was run once: by whom, when, for how long, how it ended."`
	Paths     pathsCmd     `cmd:"" help:"Lock paths of a tree, list and break such locks."`
	Documents documentsCmd `cmd:"" help:"List the locked documents of a collection, or those that were set aside as dead."`
	Doctor    doctorCmd    `cmd:"" help:"Say whether this deployment can be trusted with locks."`

	Completion completionCmd `cmd:"" help:"Print a shell's completion script."`
	Man        manCmd        `cmd:"" help:"Print the man page."`
}

const about = `Distributed locks on MongoDB, for people and scripts.

Text on a terminal is a table, elsewhere lines with tabs between the fields and without
a heading. NO_COLOR turns colours off. Times are those of the server's clock.

` + exitHelp

// An app holds what a command works with.
type app struct {
	*cli
	stdout, stderr io.Writer
	model          *kong.Application
	begun          time.Time
}

func parser(c *cli, out, errs io.Writer) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("mongolock"),
		kong.Description(about),
		kong.Writers(out, errs),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100}),
		kong.Vars{"version": version()},
		kong.Help(help),
	)
}

// help is kong's help, but keeps the line breaks of a command's own help.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	cmd := ctx.Selected()
	if cmd == nil {
		return kong.DefaultHelpPrinter(options, ctx)
	}
	options.Compact = true
	out := ctx.Stdout
	var text strings.Builder
	ctx.Stdout = &text
	err := kong.DefaultHelpPrinter(options, ctx)
	ctx.Stdout = out
	_, rest, _ := strings.Cut(text.String(), "\n\n")
	_, failed := fmt.Fprintf(out, "Usage: mongolock %s\n\n%s", synopsis(cmd), rest)
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
