package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// A completionCmd is `mongolock completion`.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help says where the script goes.
func (*completionCmd) Help() string {
	return `Where the script belongs:

   bash   mongolock completion bash > /etc/bash_completion.d/mongolock
   zsh    mongolock completion zsh > "${fpath[1]}/_mongolock"
   fish   mongolock completion fish > ~/.config/fish/completions/mongolock.fish`
}

// Run prints the script.
func (c *completionCmd) Run(a *app) error {
	if a.Output == "json" {
		return writeJSON(a, map[string]string{"shell": c.Shell, "script": completion(c.Shell, a.model)})
	}
	_, err := io.WriteString(a.stdout, completion(c.Shell, a.model))
	return err
}

// A manCmd is `mongolock man`.
type manCmd struct{}

// Run prints the page.
func (*manCmd) Run(a *app) error {
	if a.Output == "json" {
		return writeJSON(a, map[string]string{"page": manPage(a.model)})
	}
	_, err := io.WriteString(a.stdout, manPage(a.model))
	return err
}

func writeJSON(a *app, v any) error {
	p := printer{w: a.stdout}
	return p.encode(v)
}

// words returns all flags of a command as they are typed.
func words(flags []*kong.Flag) string {
	all := make([]string, len(flags))
	for i, f := range flags {
		all[i] = "--" + f.Name
	}
	return strings.Join(all, " ")
}

func completion(shell string, model *kong.Application) string {
	var b strings.Builder
	switch shell {
	case "bash":
		bash(&b, model)
	case "zsh":
		zsh(&b, model)
	case "fish":
		fish(&b, model)
	}
	return b.String()
}

func bash(b *strings.Builder, model *kong.Application) {
	var names []string
	for _, c := range commands(model) {
		names = append(names, c.Name)
	}
	fmt.Fprintf(b, `# Made by mongolock completion bash.
_mongolock() {
	local cur=${COMP_WORDS[COMP_CWORD]} cmd= i
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--) compopt -o default; COMPREPLY=(); return ;;
		-*) ;;
		%s) cmd=${COMP_WORDS[i]}; break ;;
		esac
	done
	local words
	case $cmd in
	"") words="%s %s" ;;
`, strings.Join(names, "|"), strings.Join(names, " "), words(flagsOf(model, nil)))
	for _, c := range commands(model) {
		own := words(flagsOf(model, c))
		if c.Name == "completion" {
			own += " bash zsh fish"
		}
		own = strings.Join(append(children(c), own), " ")
		fmt.Fprintf(b, "\t%s) words=%q ;;\n", c.Name, own)
	}
	b.WriteString(`	esac
	COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _mongolock mongolock
`)
}

func zsh(b *strings.Builder, model *kong.Application) {
	quote := func(s string) string {
		return strings.NewReplacer("'", "'\\''", "[", "\\[", "]", "\\]", ":", "\\:").Replace(s)
	}
	flags := func(of []*kong.Flag) {
		for _, f := range of {
			value := ""
			if !f.IsBool() {
				value = ":" + f.FormatPlaceHolder() + ":"
				if f.Enum != "" {
					value = ":" + f.Name + ":(" + strings.ReplaceAll(f.Enum, ",", " ") + ")"
				}
			}
			fmt.Fprintf(b, " \\\n\t\t'--%s[%s]%s'", f.Name, quote(firstSentence(f.Help)), strings.ReplaceAll(value, "'", ""))
		}
	}
	b.WriteString("#compdef mongolock\n# Made by mongolock completion zsh.\n_mongolock() {\n\tlocal -a commands\n\tcommands=(\n")
	for _, c := range commands(model) {
		fmt.Fprintf(b, "\t\t'%s:%s'\n", c.Name, quote(c.Help))
	}
	b.WriteString("\t)\n\tlocal state line\n\t_arguments -C")
	flags(flagsOf(model, nil))
	b.WriteString(" \\\n\t\t'1: :->command' '*:: :->rest'\n\tcase $state in\n\tcommand) _describe command commands ;;\n\trest)\n\t\tcase $line[1] in\n")
	for _, c := range commands(model) {
		fmt.Fprintf(b, "\t\t%s) _arguments", c.Name)
		flags(flagsOf(model, c))
		switch c.Name {
		case "run", "once":
			b.WriteString(" '1:key:' '*::command:_normal'")
		case "completion":
			b.WriteString(" '1:shell:(bash zsh fish)'")
		}
		if names := children(c); names != nil {
			fmt.Fprintf(b, " '1:command:(%s)' '*::command:_normal'", strings.Join(names, " "))
		}
		b.WriteString(" ;;\n")
	}
	b.WriteString("\t\tesac ;;\n\tesac\n}\n_mongolock \"$@\"\n")
}

func fish(b *strings.Builder, model *kong.Application) {
	quote := func(s string) string { return strings.ReplaceAll(s, "'", "\\'") }
	b.WriteString("# Made by mongolock completion fish.\n")
	line := func(condition string, f *kong.Flag) {
		fmt.Fprintf(b, "complete -c mongolock%s -l %s -d '%s'", condition, f.Name, quote(firstSentence(f.Help)))
		switch {
		case f.Enum != "":
			fmt.Fprintf(b, " -x -a '%s'", strings.ReplaceAll(f.Enum, ",", " "))
		case !f.IsBool():
			b.WriteString(" -x")
		}
		b.WriteString("\n")
	}
	for _, f := range flagsOf(model, nil) {
		line("", f)
	}
	for _, c := range commands(model) {
		fmt.Fprintf(b, "complete -c mongolock -f -n __fish_use_subcommand -a %s -d '%s'\n", c.Name, quote(c.Help))
		for _, f := range ownFlags(c) {
			line(" -n '__fish_seen_subcommand_from "+c.Name+"'", f)
		}
		if names := children(c); names != nil {
			fmt.Fprintf(b, "complete -c mongolock -f -n '__fish_seen_subcommand_from %s' -a '%s'\n", c.Name, strings.Join(names, " "))
		}
	}
	b.WriteString("complete -c mongolock -f -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n")
	b.WriteString("complete -c mongolock -n '__fish_seen_subcommand_from run once' -a '(__fish_complete_subcommand)'\n")
}

func firstSentence(s string) string {
	s, _, _ = strings.Cut(s, ". ")
	return strings.TrimSuffix(s, ".")
}

// manPage returns the page in the older macros man(7).
func manPage(model *kong.Application) string {
	var b strings.Builder
	text := strings.NewReplacer("\\", "\\e", "-", "\\-", "\n.", "\n\\&.", "\n'", "\n\\&'")
	para := func(s string) {
		indented := false
		for line := range strings.SplitSeq(s, "\n") {
			is := strings.HasPrefix(line, "   ")
			switch {
			case is && !indented:
				b.WriteString(".PP\n.nf\n")
			case !is && indented:
				b.WriteString(".fi\n")
			}
			indented = is
			if strings.TrimSpace(line) == "" {
				if !is {
					b.WriteString(".PP\n")
				}
				continue
			}
			b.WriteString(strings.TrimPrefix(text.Replace("\n"+line), "\n") + "\n")
		}
		if indented {
			b.WriteString(".fi\n")
		}
	}
	flags := func(of []*kong.Flag) {
		for _, f := range of {
			if f.Hidden {
				continue
			}
			name := "--" + f.Name
			if f.Short != 0 {
				name = "-" + string(f.Short) + ", " + name
			}
			if !f.IsBool() {
				name += "=" + f.FormatPlaceHolder()
			}
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", text.Replace(name), text.Replace(helpOf(f)))
		}
	}
	b.WriteString(".\\\" Made by mongolock man.\n.TH MONGOLOCK 1\n.SH NAME\nmongolock \\- distributed locks on MongoDB\n.SH SYNOPSIS\n")
	for _, c := range leaves(model) {
		fmt.Fprintf(&b, ".br\n\\fBmongolock\\fR %s\n", text.Replace(synopsis(c)))
	}
	b.WriteString(".SH DESCRIPTION\n")
	para(model.Help)
	b.WriteString(".SH OPTIONS\n")
	flags(model.Flags)
	b.WriteString(".SH COMMANDS\n")
	for _, c := range leaves(model) {
		fmt.Fprintf(&b, ".SS %s\n%s\n", text.Replace(strings.TrimPrefix(c.FullPath(), "mongolock ")), text.Replace(c.Help))
		if c.Detail != "" {
			b.WriteString(".PP\n")
			para(c.Detail)
		}
		for _, arg := range c.Positional {
			fmt.Fprintf(&b, ".TP\n\\fI%s\\fR\n%s\n", text.Replace(arg.Name), text.Replace(arg.Help))
		}
		flags(c.Flags)
	}
	b.WriteString(".SH EXIT STATUS\n")
	para(strings.TrimPrefix(exitHelp, "Exit codes:\n"))
	return b.String()
}

// helpOf returns a flag's help, with the variables that set it.
func helpOf(f *kong.Flag) string {
	if len(f.Envs) == 0 || strings.Contains(f.Help, "$"+f.Envs[0]) {
		return f.Help
	}
	return f.Help + " ($" + strings.Join(f.Envs, ", $") + ")"
}
