package servers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// findSecantus looks for SecantusDB's Rust server on PATH and in the folder of the project's
// `make server`.
func findSecantus(_ context.Context, s Config) (backend, error) {
	path, err := lookPath("secantusd-rs", "mongolock", "secantus", "bin")
	switch {
	case err != nil:
		return nil, err
	case s.many():
		return nil, errNoSet
	}
	return newProcess(program{path: path, args: secantusArgs, listening: "listening on "}, s), nil
}

func secantusArgs(port int, dir string, auth bool) ([]string, error) {
	// Without a file of its own it would use the settings in the user's home.
	config := filepath.Join(dir, "secantusd.toml")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		return nil, err
	}
	args := []string{
		"--config", config,
		"--port", fmt.Sprint(port),
		"--storage-path", filepath.Join(dir, "data"),
		"--sync-on-commit", // without it a write that was acknowledged with j may not survive a kill
		"--cache-size", "256M",
		"--log-file-max", "16MB", // the size of an empty store
	}
	if auth {
		args = append(args, "--auth")
	}
	return args, nil
}
