package specpath

import (
	"fmt"
	"strconv"
	"strings"
)

// A term is a value of TLA+ as TLC prints it: a string, an int, a bool or a tuple.
type term any

// parse reads one term, and returns the rest of the text.
func parse(text string) (term, string, error) {
	text = strings.TrimLeft(text, " ,")
	switch {
	case strings.HasPrefix(text, "<<"):
		tuple := []term{}
		for rest := text[2:]; ; {
			rest = strings.TrimLeft(rest, " ,")
			if after, ok := strings.CutPrefix(rest, ">>"); ok {
				return tuple, after, nil
			}
			element, after, err := parse(rest)
			if err != nil {
				return nil, "", err
			}
			tuple, rest = append(tuple, element), after
		}
	case strings.HasPrefix(text, `"`):
		s, rest, closed := strings.Cut(text[1:], `"`)
		if !closed {
			return nil, "", fmt.Errorf("specpath: a string without an end: %s", text)
		}
		return s, rest, nil
	}
	end := strings.IndexAny(text, " ,>")
	if end < 0 {
		end = len(text)
	}
	word, rest := text[:end], text[end:]
	switch word {
	case "TRUE", "FALSE":
		return word == "TRUE", rest, nil
	}
	n, err := strconv.Atoi(word)
	if err != nil {
		return nil, "", fmt.Errorf("specpath: no term: %q", text)
	}
	return n, rest, nil
}
