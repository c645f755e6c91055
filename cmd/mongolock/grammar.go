package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// flagsOf returns a command's own flags and those of the program.
func flagsOf(model *kong.Application, cmd *kong.Node) []*kong.Flag {
	flags := append([]*kong.Flag{}, model.Flags...)
	if cmd != nil {
		flags = append(flags, ownFlags(cmd)...)
	}
	var visible []*kong.Flag
	for _, f := range flags {
		if !f.Hidden {
			visible = append(visible, f)
		}
	}
	return visible
}

// synopsis returns how a command is typed: its flags stand before its arguments.
func synopsis(cmd *kong.Node) string {
	name, rest := cmd.Path(), strings.TrimPrefix(cmd.Summary(), cmd.Path())
	rest = strings.TrimSuffix(rest, " [flags]")
	return name + " [flags]" + strings.Replace(rest, "<command> ...", "[--] <command> ...", 1)
}

func commands(model *kong.Application) []*kong.Node {
	var all []*kong.Node
	for _, n := range model.Children {
		if n.Type == kong.CommandNode && !n.Hidden {
			all = append(all, n)
		}
	}
	return all
}

// leaves returns the commands that can be run: for a group, those within it.
func leaves(model *kong.Application) []*kong.Node {
	var all []*kong.Node
	for _, c := range commands(model) {
		if len(c.Children) == 0 {
			all = append(all, c)
		}
		all = append(all, c.Children...)
	}
	return all
}

// children returns the names of a group's commands, or nothing if it is not a group.
func children(c *kong.Node) (names []string) {
	for _, child := range c.Children {
		names = append(names, child.Name)
	}
	return names
}

// ownFlags returns the flags of a command, or of all commands of a group.
func ownFlags(c *kong.Node) []*kong.Flag {
	all, has := slices.Clone(c.Flags), map[string]bool{}
	for _, child := range c.Children {
		all = append(all, child.Flags...)
	}
	return slices.DeleteFunc(all, func(f *kong.Flag) bool {
		was := has[f.Name]
		has[f.Name] = true
		return was || f.Hidden
	})
}
