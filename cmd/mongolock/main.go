// Command mongolock runs commands under locks of package mongolock, shows their holders, and
// says whether a deployment can be trusted with locks.
//
//	mongolock run nightly -- ./report.sh
//	mongolock ls
//	mongolock doctor
//
// `mongolock --help` lists the commands and the exit codes.
//
// Begin with app.go: what every command does. task.go has what run (with due.go), once and paths lock
// share, run_unix.go the command from its start to its end, group_linux.go what was started
// under it, guard_unix.go the second process, which ends the command if this one cannot. Each other
// file is a command.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"slices"
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
	Output  string      `group:"common" help:"Print text, or json: one object a line." enum:"text,json" default:"text" env:"MONGOLOCK_OUTPUT" placeholder:"text|json"`
	Version versionFlag `group:"common" help:"Print the version."`

	Run        runCmd        `cmd:"" help:"Run a command while holding a key."`
	Once       onceCmd       `cmd:"" help:"Run a command once, ever, on one of many hosts."`
	Ls         lsCmd         `cmd:"" help:"List keys and their holders."`
	Show       showCmd       `cmd:"" help:"Show who holds a key, and who waits."`
	Watch      watchCmd      `cmd:"" help:"Show keys as they change hands."`
	Break      breakCmd      `cmd:"" help:"Take a key away from its holders."`
	Partitions partitionsCmd `cmd:"" help:"Show which worker has which partitions."`
	Jobs       jobsCmd       `cmd:"" help:"List scheduled jobs; run, pause, resume or forget one."`
	OnceLs     onceLsCmd     `cmd:"" help:"List what was run once: by whom, when, how it ended."`
	Paths      pathsCmd      `cmd:"" help:"Lock paths of a tree; list and break such locks."`
	Documents  documentsCmd  `cmd:"" help:"List the locked or dead documents of a collection."`
	Doctor     doctorCmd     `cmd:"" help:"Check whether a deployment can be trusted with locks."`
}

const commonFlags = "Common flags:"

const about = `Distributed locks on MongoDB, for people and scripts.

   mongolock run nightly -- ./report.sh
   mongolock ls

A list is a table on a terminal, and elsewhere lines of fields with tabs between them. Times are
those of the server's clock.`

type versionFlag bool

// BeforeReset prints the version, whatever else is on the command line.
func (versionFlag) BeforeReset(k *kong.Kong) error {
	a := &app{cli: &cli{Output: outputOf(os.Args)}, stdout: k.Stdout}
	if err := a.text("version", version()+"\n"); err != nil {
		return err
	}
	k.Exit(0)
	return nil
}

// outputOf returns the value of --output on a command line that was not parsed, or could not be.
func outputOf(args []string) string {
	if strings.Contains(strings.Join(args, " "), "--output json") || slices.Contains(args, "--output=json") || os.Getenv("MONGOLOCK_OUTPUT") == "json" {
		return "json"
	}
	return "text"
}

func parser(c *cli, out, errs io.Writer) (*kong.Kong, error) {
	k, err := kong.New(c,
		kong.Name("mongolock"),
		kong.Description(about),
		kong.Writers(out, errs),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100}),
		kong.ExplicitGroups([]kong.Group{{Key: "common", Title: commonFlags}}),
		kong.Help(help),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(duration)),
		kong.KindMapper(reflect.String, kong.MapperFunc(text)),
	)
	if err == nil {
		own := k.Model.HelpFlag
		own.Help, own.Group = "Print help; after a command, its own.", k.Model.Flags[len(k.Model.Flags)-1].Group
	}
	return k, err
}

// text reads a word as it is: kong's own mapper changes one that is not UTF-8, such as a file's name.
func text(ctx *kong.DecodeContext, target reflect.Value) error {
	word, err := ctx.Scan.PopValue("string")
	if err == nil {
		target.SetString(fmt.Sprint(word.Value))
	}
	return err
}

// duration reads a flag's value, and shows how one is written.
func duration(ctx *kong.DecodeContext, target reflect.Value) error {
	word, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(fmt.Sprint(word.Value))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 500ms, 30s, 5m or 24h", word.Value)
	}
	target.SetInt(int64(d))
	return nil
}

// help is kong's help with our usage line, and with the exit codes at the end of the program's own.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	out := ctx.Stdout
	var text strings.Builder
	ctx.Stdout = &text
	err := kong.DefaultHelpPrinter(options, ctx)
	ctx.Stdout = out
	_, rest, _ := strings.Cut(text.String(), "\n")
	usage, last := "<command> [flags] [arguments]", "\n"+exitHelp+"\n"
	if cmd := ctx.Selected(); cmd != nil {
		words := strings.TrimSuffix(strings.TrimPrefix(cmd.Summary(), cmd.Path()), " [flags]")
		usage, last = cmd.Path()+" [flags]"+strings.Replace(words, "<command> ...", "[--] <command> ...", 1), "" // flags stand before the arguments
	}
	_, failed := fmt.Fprintf(out, "Usage: mongolock %s\n%s%s", usage, rest, last)
	return errors.Join(err, failed)
}

const guardName = "mongolock-guard"

func main() {
	if os.Args[0] == guardName {
		os.Exit(guard())
	}
	os.Exit(execute(os.Args[1:]))
}

func execute(args []string) int {
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); value == "" && strings.HasPrefix(name, "MONGOLOCK_") {
			_ = os.Unsetenv(name) // an empty one counts as not set
		}
	}
	a := &app{cli: &cli{}, stdout: os.Stdout, stderr: os.Stderr}
	k, err := parser(a.cli, a.stdout, a.stderr)
	if err != nil {
		return a.conclude(err)
	}
	a.model = k.Model
	ctx, err := k.Parse(args)
	if err != nil {
		a.Output = outputOf(args)
		return a.conclude(misused(err))
	}
	a.ctx, a.caught = untilSignal()
	if c, is := ctx.Selected().Target.Addr().Interface().(interface{ check() error }); is {
		err = c.check()
	}
	if err == nil {
		err = ctx.Run(a)
	}
	err = a.stopped(err)
	a.end()
	return a.conclude(err)
}

// misused returns the error of a command line that cannot be parsed, with the help that leads on.
func misused(err error) error {
	var parse *kong.ParseError
	var write *os.PathError
	switch {
	case errors.As(err, &write): // of the help, or the version
		return err
	case errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil:
		return exitf(exitUsage, "%s (see mongolock %s --help)", err, strings.TrimPrefix(parse.Context.Selected().FullPath(), "mongolock "))
	}
	return exitf(exitUsage, "%s (see mongolock --help)", err)
}
