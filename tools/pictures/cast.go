package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// A printed line of a recording, with the time at which it was there.
type printed struct {
	at   float64 // in seconds since the beginning
	text string
}

// readCast returns the lines of an asciicast (version 2): a header, then an array
// [time, "o", text] for each piece of output.
func readCast(cast string) (all []printed, err error) {
	header, rest, _ := strings.Cut(cast, "\n")
	var head struct{ Version int }
	if err := json.Unmarshal([]byte(header), &head); err != nil || head.Version != 2 {
		return nil, errors.Join(errors.New("not an asciicast of version 2"), err)
	}
	open := ""
	for i, event := range strings.Split(strings.TrimSpace(rest), "\n") {
		var at float64
		var kind, text string
		if err := json.Unmarshal([]byte(event), &[]any{&at, &kind, &text}); err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
		if kind != "o" {
			continue
		}
		lines := strings.Split(open+text, "\n")
		for _, l := range lines[:len(lines)-1] {
			all = append(all, printed{at, strings.TrimRight(l, "\r")})
		}
		open = lines[len(lines)-1]
	}
	return all, nil
}
