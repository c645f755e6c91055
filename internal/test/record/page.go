package main

import (
	"fmt"
	"strings"
)

// page draws docs/internals/record.md.
func (r *record) page() string {
	var live, gone strings.Builder
	n := 0
	for _, f := range r.faults {
		if f.Gone != "" {
			fmt.Fprintf(&gone, "| %s | %s | %s | %s |\n", f.Saw, f.Found, f.Fixed, f.Gone)
			continue
		}
		n++
		fmt.Fprintf(&live, "| %s | %s | %s | %s: `%s` |\n", f.Saw, f.Found, f.Fixed, f.Name, f.command())
	}
	return fmt.Sprintf(`# The record

`+"`make record`"+` draws this page from [faults.json](../../internal/test/record/faults.json); a test fails if it was changed by hand.

## Faults found

All were found before the first release. Each of these %d is put back by a patch of [faults](../../internal/test/record/faults),
and `+"`make reproduce`"+` fails if its test no longer finds it. To see one: `+"`make reproduce FAULT=NAME`"+`.

| what a user could have seen | found by | fixed in | name, and the command that finds it with the patch |
|---|---|---|---|
%s
These have no place in today's code:

| what a user could have seen | found by | fixed in | why it cannot be put back |
|---|---|---|---|
%s`, n, live.String(), gone.String())
}
