package patch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Overlay writes changed sources beside each other into the folder out, and returns the file that
// names them. The files without are left out of the build.
func Overlay(root, out string, files map[string][]byte, without ...string) (string, error) {
	replace := map[string]string{}
	for _, file := range without {
		replace[filepath.Join(root, file)] = ""
	}
	for file, content := range files {
		// Not .go: neither gofmt nor ./... is to find the copies.
		faulty := filepath.Join(out, strings.ReplaceAll(file, "/", "_")+".patched")
		if err := write(faulty, content); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = faulty
	}
	content, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return "", err
	}
	path := filepath.Join(out, "overlay.json")
	return path, write(path, content)
}

// write replaces a file at once: another build may be reading it.
func write(path string, content []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(temp, content, 0o644); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
