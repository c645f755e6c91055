package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// A completionCmd is `mongolock completion`.
type completionCmd struct {
	Shell string `arg:"" name:"bash|zsh|fish" enum:"bash,zsh,fish" help:"The shell."`
}

// Help says where the script goes.
func (*completionCmd) Help() string {
	return `Where the script belongs:

   bash   mongolock completion bash > /etc/bash_completion.d/mongolock
   zsh    mongolock completion zsh > "${fpath[1]}/_mongolock"
   fish   mongolock completion fish > ~/.config/fish/completions/mongolock.fish`
}

// completions has the scripts. Each asks the program itself what may follow, with what it means behind a tab, and
// completes as it does for other commands if that is nothing.
var completions = map[string]string{
	"bash": `# Made by mongolock completion bash.
_mongolock() {
	local IFS=$'\n'
	COMPREPLY=($(mongolock __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _mongolock mongolock
`,
	"zsh": `#compdef mongolock
# Made by mongolock completion zsh.
_mongolock() {
	local -a all
	all=("${(@f)$(mongolock __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -z $all[1] ]]; then
		_default
		return
	fi
	all=("${(@)all//:/\\:}")
	all=("${(@)all/$'\t'/:}")
	_describe -o mongolock all
}
_mongolock "$@"
`,
	"fish": `# Made by mongolock completion fish.
function __mongolock
	mongolock __complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c mongolock -f -n 'count (__mongolock) >/dev/null' -a '(__mongolock)'
complete -c mongolock -F -n 'not count (__mongolock) >/dev/null'
`,
}

// Run prints the script.
func (c *completionCmd) Run(a *app) error { return a.text("script", completions[c.Shell]) }

// A completeCmd is what the completion scripts call.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints what the last word may be.
func (c *completeCmd) Run(a *app) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	last := len(words) - 1
	for _, line := range following(a.model, words[:last], words[last]) {
		if _, err := fmt.Fprintln(a.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// following returns what may follow some words and begins with a prefix, with what it means.
func following(model *kong.Application, words []string, prefix string) (all []string) {
	node, arguments := model.Node, 0
	var value *kong.Flag // whose value comes next
	for _, w := range words {
		switch name, _, valued := strings.Cut(w, "="); {
		case w == "=": // bash takes it for a word
		case value != nil:
			value = nil
		case w == "--":
			return nil
		case strings.HasPrefix(w, "-"):
			for _, f := range visible(append(slices.Clone(node.Flags), model.Flags...)) {
				if (name == "--"+f.Name || w == "-"+string(f.Short)) && !f.IsBool() && !valued {
					value = f
				}
			}
		default:
			i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == w })
			if i < 0 {
				arguments++
				continue
			}
			node, arguments = node.Children[i], 0
		}
	}
	add := func(word, meaning string) {
		if strings.HasPrefix(word, prefix) {
			all = append(all, word+"\t"+firstSentence(meaning))
		}
	}
	enum := func(v *kong.Value) {
		if v.Enum != "" {
			for word := range strings.SplitSeq(v.Enum, ",") {
				add(word, v.Help)
			}
		}
	}
	switch {
	case value != nil:
		enum(value.Value)
	case arguments >= len(node.Positional) && len(node.Positional) > 0: // of the command that is run
	case strings.HasPrefix(prefix, "-"):
		for _, f := range visible(append(slices.Clone(node.Flags), model.Flags...)) {
			add("--"+f.Name, f.Help)
		}
	case len(node.Positional) > 0:
		enum(node.Positional[arguments])
	default:
		for _, n := range commands(node) {
			add(n.Name, n.Help)
		}
	}
	return all
}

func visible(flags []*kong.Flag) []*kong.Flag {
	return slices.DeleteFunc(slices.Clone(flags), func(f *kong.Flag) bool { return f.Hidden })
}

func commands(of *kong.Node) []*kong.Node {
	return slices.DeleteFunc(slices.Clone(of.Children), func(n *kong.Node) bool { return n.Hidden })
}

// synopsis returns how a command is typed: its flags stand before its arguments.
func synopsis(cmd *kong.Node) string {
	name, rest := cmd.Path(), strings.TrimPrefix(cmd.Summary(), cmd.Path())
	rest = strings.TrimSuffix(rest, " [flags]")
	return name + " [flags]" + strings.Replace(rest, "<command> ...", "[--] <command> ...", 1)
}

func firstSentence(s string) string {
	s, _, _ = strings.Cut(s, ". ")
	return strings.TrimSuffix(s, ".")
}

// A manCmd is `mongolock man`.
type manCmd struct{}

// Run prints the page, which has the help of the program and of each command as it is.
func (*manCmd) Run(a *app) error {
	var b strings.Builder
	text := strings.NewReplacer("\\", "\\e", "-", "\\-", "\n.", "\n\\&.", "\n'", "\n\\&'", "…", "...")
	b.WriteString(".\\\" Made by mongolock man.\n.TH MONGOLOCK 1\n.SH NAME\nmongolock \\- distributed locks on MongoDB\n")
	section := func(head string, words ...string) error {
		var of strings.Builder
		k, err := parser(&cli{}, &of, &of)
		if err != nil {
			return err
		}
		k.Exit = func(int) {}
		_, _ = k.Parse(append(words, "--help")) // after the help it finds that arguments are missing
		fmt.Fprintf(&b, "%s\n.nf\n%s.fi\n", head, strings.TrimPrefix(text.Replace("\n"+of.String()), "\n"))
		return nil
	}
	err := section(".SH DESCRIPTION")
	b.WriteString(".SH COMMANDS\n")
	for _, c := range commands(a.model.Node) {
		for _, leaf := range append([]*kong.Node{c}, c.Children...) {
			words := strings.Fields(strings.TrimPrefix(leaf.FullPath(), "mongolock "))
			err = errors.Join(err, section(".SS "+text.Replace(strings.Join(words, " ")), words...))
		}
	}
	if err != nil {
		return err
	}
	return a.text("page", b.String())
}
