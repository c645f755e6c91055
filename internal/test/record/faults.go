package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mongolock/mongolock/internal/test/patch"
)

// A fault is one that was in the library, was found, and was mended.
type fault struct {
	Name    string   `json:"name"`             // of its patch
	Saw     string   `json:"saw"`              // what a user could have seen
	Found   string   `json:"found"`            // by a test, seeds, the model, an audit, MongoDB, a user
	Fixed   string   `json:"fixed"`            // the commit
	Module  string   `json:"module,omitempty"` // its folder, if it is not the library's
	Package string   `json:"package,omitempty"`
	Test    string   `json:"test,omitempty"`   // that finds it today
	Flags   []string `json:"flags,omitempty"`  // of that test: a seed
	Server  bool     `json:"server,omitempty"` // the test needs one
	Within  string   `json:"within,omitempty"` // with the fault the test never ends: how long it may take
	Panics  string   `json:"panics,omitempty"` // with the fault the process ends, and so the test says nothing: with this panic
}

// command finds the fault by hand, once it is in the sources.
func (f fault) command() string {
	return strings.Join(slices.Concat([]string{"go", "test"}, in(f.Module), []string{f.Package, "-run", f.pattern()}, f.Flags), " ")
}

// in makes go test work in another module.
func in(module string) []string {
	if module == "" {
		return nil
	}
	return []string{"-C", module}
}

func (f fault) pattern() string { return "^" + f.Test + "$" }

// reproduce builds one fault after the other in. A test that fails without it shows nothing, so
// the tests run without them, too.
func (r *record) reproduce(ctx context.Context, args []string) error {
	faults := slices.DeleteFunc(slices.Clone(r.faults), func(f fault) bool {
		return len(args) > 0 && !slices.Contains(args, f.Name)
	})
	if len(faults) == 0 {
		return fmt.Errorf("no such fault: %v", args)
	}
	began := time.Now()
	errs := []error{r.sound(ctx, faults)}
	for _, f := range faults {
		took := time.Now()
		if err := r.found(ctx, f); err != nil {
			fmt.Fprintf(os.Stdout, "NOT FOUND %s\n", f.Name)
			errs = append(errs, fmt.Errorf("%s: %w", f.Name, err))
			continue
		}
		fmt.Fprintf(os.Stdout, "found     %-28s %5.1f s  %s\n", f.Name, time.Since(took).Seconds(), f.command())
	}
	fmt.Fprintf(os.Stdout, "%d faults in %v\n", len(faults), time.Since(began).Round(time.Second))
	return errors.Join(errs...)
}

// found returns nil if the fault's test fails as it should with the fault built in.
func (r *record) found(ctx context.Context, f fault) error {
	p, err := patch.Read(r.patchOf(f.Name))
	if err != nil {
		return err
	}
	files, err := patch.Apply(r.root, p)
	if err != nil {
		return err
	}
	overlay, err := patch.Overlay(r.root, filepath.Join(r.root, "bin", "record", f.Name), files)
	if err != nil {
		return err
	}
	out, err := r.test(ctx, f.Server, f.Module, append([]string{"-overlay", overlay, "-run", f.pattern(), "-timeout", cmp.Or(f.Within, "4m"), f.Package}, f.Flags...)...)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && out == "":
		return err // it did not run
	case err == nil:
		return fmt.Errorf("%s passes although the fault is there", f.Test)
	case f.Panics != "" && strings.Contains(out, "panic: "+f.Panics):
	case !strings.Contains(out, "--- FAIL: "+f.Test) && !strings.Contains(out, "panic: test timed out"):
		return fmt.Errorf("%s did not fail, something else did:\n%s", f.Test, out)
	}
	return nil
}

// sound returns an error if a test fails although its fault is not there.
func (r *record) sound(ctx context.Context, faults []fault) error {
	type group struct {
		module, where, flags string
		server               bool
	}
	groups := map[group][]string{}
	for _, f := range faults {
		g := group{f.Module, f.Package, strings.Join(f.Flags, " "), f.Server}
		if !slices.Contains(groups[g], f.Test) {
			groups[g] = append(groups[g], f.Test)
		}
	}
	var errs []error
	for g, tests := range groups {
		args := append([]string{"-v", "-run", "^(" + strings.Join(tests, "|") + ")$", g.where}, strings.Fields(g.flags)...)
		out, err := r.test(ctx, g.server, g.module, args...)
		if err != nil {
			errs = append(errs, fmt.Errorf("without any fault: %w\n%s", err, out))
			continue
		}
		for _, t := range tests {
			if !strings.Contains(out, "--- PASS: "+t) {
				errs = append(errs, fmt.Errorf("%s: %s did not run", g.where, t))
			}
		}
	}
	return errors.Join(errs...)
}

// serverAt names a server in the environment of tests.
const serverAt = "MONGODB_URI"

// test runs go test. It has a server only if the test needs one.
func (r *record) test(ctx context.Context, server bool, module string, args ...string) (string, error) {
	args = slices.Concat([]string{"go", "test"}, in(module), []string{"-count=1", "-vet=off"}, args)
	if server && os.Getenv(serverAt) == "" {
		return "", errors.New("it needs a server: make reproduce")
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return !server && strings.HasPrefix(e, serverAt+"=") })
	cmd.Dir = r.root
	out, err := cmd.CombinedOutput()
	return string(out), err
}
