package pathlock

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxPath is the largest size of a path, in bytes.
const maxPath = 4096

// ErrPath answers a call with a path that breaks the rules of the package comment.
// Nothing was sent.
var ErrPath = errors.New("pathlock: not a path")

// Clean returns the clean form of a path: each segment after one slash. The root is "/".
// It returns ErrPath for a path that breaks the rules of the package comment.
func Clean(path string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fmt.Errorf("%w: %.100q: %s", ErrPath, path, why)
	}
	switch {
	case len(path) > maxPath:
		return refuse(fmt.Sprintf("%d bytes are more than %d", len(path), maxPath))
	case !utf8.ValidString(path):
		return refuse("not valid UTF-8")
	case strings.ContainsRune(path, 0):
		return refuse("contains NUL")
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return refuse(fmt.Sprintf("the segment %q could mean anything", segment))
		}
	}
	if isClean(path) {
		return path, nil
	}
	var b strings.Builder
	for segment := range strings.SplitSeq(path, "/") {
		if segment != "" {
			b.WriteByte('/')
			b.WriteString(segment)
		}
	}
	if b.Len() == 0 {
		return "/", nil
	}
	return b.String(), nil
}

// isClean spares paths that are clean already a copy.
func isClean(path string) bool {
	return path == "/" || strings.HasPrefix(path, "/") && !strings.HasSuffix(path, "/") && !strings.Contains(path, "//")
}

// segments yields the segments of a clean path.
func segments(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for rest := path[1:]; rest != ""; {
			segment, after, _ := strings.Cut(rest, "/")
			if !yield(segment) {
				return
			}
			rest = after
		}
	}
}

// parent returns the path above a clean one. The root has none.
func parent(path string) (above string, ok bool) {
	if path == "/" {
		return "", false
	}
	if cut := strings.LastIndexByte(path, '/'); cut > 0 {
		return path[:cut], true
	}
	return "/", true
}

// below reports whether a clean path is a proper descendant of another.
func below(path, ancestor string) bool {
	if ancestor == "/" {
		return path != "/"
	}
	return len(path) > len(ancestor) && path[len(ancestor)] == '/' && strings.HasPrefix(path, ancestor)
}

// resolve returns the clean path that a caller means, after the alias function.
func (t *Tree) resolve(path string) (string, error) {
	clean, err := Clean(path)
	if err != nil || t.alias == nil {
		return clean, err
	}
	meant, err := t.alias(clean)
	if err != nil {
		return "", fmt.Errorf("pathlock: the alias of %q: %w", clean, err)
	}
	resolved, err := Clean(meant)
	if err != nil {
		return "", fmt.Errorf("pathlock: the alias of %q: %w", clean, err)
	}
	return resolved, nil
}
